"""The corruptions of Hendrycks & Dietterich (2019), and what is measured on them."""
