"""The add-only ring of CKKS and BFV: one prime, sized by what is added, checked against the HE standard."""

import math
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any

from covey.crypto.sealing.sealing import check_capacity
from covey.errors import CoveyError, nearest

# log2 q at most, ternary secret, 128 bits against classical attacks (HomomorphicEncryption.org standard, 2018)
HE_STANDARD_128 = {1024: 27, 2048: 54, 4096: 109, 8192: 218, 16384: 438, 32768: 881}
# Estimates have come down a little since 2018, so a modulus at the very limit (N = 2048 with 54 bits) has no margin.
MARGIN = 0.97
# Fewer bits after the point make sums too coarse to train on: CKKS's noise takes some 16 bits, BFV only rounds.
LEAST_UNIT_BITS = {"ckks": 28, "bfv": 10}

LEAST_BOUND = 1e-7  # a thousand times what CKKS's noise comes to at the largest scale that SEAL takes


def check_security(degree: int, modulus_bits: int) -> None:
    """Refuses a ring below 128-bit security by the HE standard's table less 3 %."""
    if degree not in HE_STANDARD_128:
        raise CoveyError(f"Ring degree {degree}: expected one of {', '.join(map(str, HE_STANDARD_128))}.")
    most = int(MARGIN * HE_STANDARD_128[degree])
    if modulus_bits > most:
        raise CoveyError(
            f"Ring degree {degree} with a {modulus_bits}-bit modulus is below 128-bit security with a margin: "
            f"at most {most} bits (the HE standard's {HE_STANDARD_128[degree]} less 3 %); raise the degree."
        )


@dataclass(frozen=True)
class Ring:
    """Add-only parameters: one prime `q`; vectors within `±bound`, of which at most `terms` are added."""

    scheme: str  # "ckks" or "bfv"
    degree: int
    modulus: int
    unit_bits: int  # 1.0 is carried as 2^unit_bits: CKKS's scale, BFV's fixed point
    bound: float
    terms: int
    plain_modulus: int = 0  # BFV's t; 0 for CKKS

    def __post_init__(self) -> None:
        whole = (self.degree, self.modulus, self.unit_bits, self.terms, self.plain_modulus)
        if not all(isinstance(number, Integral) for number in whole):
            raise CoveyError(
                f"Parameters of {self.scheme} {whole}: expected whole numbers, as generate_keys gave them."
            )
        check_security(self.degree, self.modulus.bit_length())
        check_capacity(self.bound, self.terms)
        if self.bound < LEAST_BOUND:
            raise CoveyError(
                f"Numbers within ±{self.bound:g} drown in noise: raise algorithm.bound to {LEAST_BOUND:g} or more."
            )
        least = LEAST_UNIT_BITS.get(self.scheme)
        if least is None:
            raise CoveyError(f"No ring for the scheme '{self.scheme}'{nearest(self.scheme, list(LEAST_UNIT_BITS))}")
        if self.unit_bits < least:
            raise CoveyError(
                f"{self.scheme} for {self.terms} terms within ±{self.bound:g} leaves {self.unit_bits} bits after the "
                f"point, expected at least {least}: lower bound or terms."
            )
        if self.modulus.bit_length() > 61:
            raise CoveyError(f"A {self.modulus.bit_length()}-bit prime: residues are added in 64 bits, use 61 or less.")
        if (self.scheme == "bfv") != (self.plain_modulus > 1) or self.unit_bits > self._most_unit_bits():
            raise CoveyError(
                f"{self.scheme} cannot carry sums of {self.terms} terms within ±{self.bound:g} with {self.unit_bits} bits after "
                "the point: these parameters were altered, expected what generate_keys gave."
            )

    def _most_unit_bits(self) -> float:
        """With more a sum could wrap (or SEAL takes no such scale), and what is opened would be wrong without a word."""
        sums = math.log2(self.bound) + math.log2(self.terms)
        if self.scheme == "bfv":
            return math.log2((self.plain_modulus - 1) / 2) - sums
        return min(math.log2(self.modulus / 2) - 0.5 - sums, self.modulus.bit_length() - 2)

    @cached_property
    def context(self) -> Any:
        seal = _library()
        parameters = seal.EncryptionParameters(getattr(seal.scheme_type, self.scheme))
        parameters.set_poly_modulus_degree(self.degree)
        parameters.set_coeff_modulus([seal.Modulus(self.modulus)])
        if self.plain_modulus:
            parameters.set_plain_modulus(self.plain_modulus)
        context = seal.SEALContext(parameters)  # SEAL makes its own check at 128 bits
        if not context.parameters_set():
            raise CoveyError(f"SEAL refuses these {self.scheme} parameters: {context.parameter_error_message()}.")
        return context

    @property
    def ciphertext_bytes(self) -> int:
        return 2 * self.degree * 8  # c0 | c1

    def payload_bytes(self, length: int) -> int:
        return -(-length // self.degree) * self.ciphertext_bytes  # `degree` floats per ciphertext in both schemes


def prime(degree: int, bits: int) -> int:
    """The library's `bits`-bit prime for this degree."""
    check_security(degree, bits)
    return int(_library().CoeffModulus.Create(degree, [bits])[0].value())


def _library() -> Any:
    """Microsoft SEAL; imported when first needed, so that what is not sealed runs where it is not installed."""
    try:
        import seal
    except ImportError as e:
        raise CoveyError(f"sealed sums need the package seal-python: pip install seal-python==4.4.0 ({e})") from e
    return seal
