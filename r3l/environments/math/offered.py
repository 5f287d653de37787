"""The kinds of reasoning-gym that are offered: those whose scorers compare text or numbers.

Not offered: scorers that run an answer as code (polynomial_multiplication, simple_integration, ...) and those that a
wrong answer can satisfy (complex_arithmetic takes nan, calendar_arithmetic any number where a negative one is right).
"""

KINDS = (
    "base_conversion",
    "basic_arithmetic",
    "chain_sum",
    "count_bits",
    "count_primes",
    "decimal_arithmetic",
    "decimal_chain_sum",
    "fraction_simplification",
    "gcd",
    "gsm_symbolic",
    "lcm",
    "leg_counting",
    "number_sequence",
    "power_function",
    "prime_factorization",
    "products",
    "simple_equations",
    "simple_geometry",
)
