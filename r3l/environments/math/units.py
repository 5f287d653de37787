"""The unit behind a number: ``5 cm``, ``3 m/s``, ``17\\text{ apples}``. Only what is surely no mathematics goes.

math-verify would take any last ``\\text{...}`` and letters such as the c of ``3c`` for a unit, and so the number in
front for the whole answer.
"""

import re


def words(text: str) -> list[str]:
    return text.split()


# Each unit in the ways that it is written; all are spelled as the first.
SPELLINGS = (
    "cm centimeter centimeters centimetre centimetres|m meter meters metre metres|ft feet foot|"
    "in inch inches|mi mile miles|kg kilogram kilograms|g gram grams|km kilometer kilometers|"
    "lb lbs pound pounds|oz ounce ounces|s sec secs second seconds|min mins minute minutes|"
    "h hr hrs hour hours|d day days|week weeks|month months|year years|L l liter liters litre litres|"
    "gallon gallons|deg degree degrees|rad radian radians|yd yard yards|ton tons|unit units|"
    "km/h kmh kph km/hr km/hour|mph mi/h mile/hour miles/hour"
)
ALIKE = {other: first for first, *others in map(words, SPELLINGS.split("|")) for other in others}
# A `d` alone is a variable sooner than a day.
MEASURES = [
    *(one for one in words(SPELLINGS.replace("|", " ")) if one != "d" and "/" not in one),
    *words("mm dm mg ml ms mol N J kJ W kW V A K Hz kHz MHz Pa kPa"),
]
# Words that say how much, how many of them, or which: what stands before them is not the whole answer.
MEANING = words(
    "and or not nor no more less than least most times to plus minus mod modulo choose factorial squared cubed over "
    "of pi infinity infinite solution solutions through thousand million billion trillion hundred dozen half halves "
    "third thirds quarter quarters fourth fourths fifth fifths tenth tenths hundredth hundredths percent percentage "
    "pct twice double triple between about mean true false even odd prime real integer base radical root ln log lg "
    "exp sin cos tan cot sec csc arcsin arccos arctan det dim ker max min gcd lcm if for all every except where"
)
LATEX = r"\\(?:text(?:rm|bf|it|normal)?|math(?:rm|it)|mbox|rm)\s*"
GAP = r"(?:\s|\\[ ,;:!]|~)*"
POWER = r"(?:\s*\^\s*(?:\{-?\d\}|-?\d))?"
MEASURE = rf"(?:{'|'.join(sorted(map(re.escape, MEASURES), key=len, reverse=True))})\.?"
WRAPPED = rf"(?:{LATEX}\{{\s*{MEASURE}\s*\}}|{MEASURE}(?![A-Za-z])){POWER}"
JOINED = rf"{WRAPPED}(?:\s*(?:/|\\cdot|\*|\\,|\s|per)\s*{WRAPPED})*"
INSIDE = rf"{LATEX}\{{\s*{MEASURE}{POWER}(?:\s*(?:/|\s|per)\s*{MEASURE}{POWER})*\s*\}}{POWER}"
# A letter alone stands apart or is joined to another: the m of 3m is a variable, that of 3 m and of 3\text{m} is not.
UNIT = re.compile(rf"(?<=[\d)}}]){GAP}(?P<unit>{INSIDE}|{JOINED})$")
NAME = re.compile(rf"(?<=[\d)}}]){GAP}{LATEX}\{{(?P<name>[^{{}}\\]*)\}}{POWER}$")
BARE = re.compile(r"^(?P<number>[-+]?[\d.,]*\d(?:/\d+)?)\s+(?P<name>[A-Za-z]{4,}(?: [A-Za-z]{4,}){0,2})$")

BASE = re.compile(r"(?<=\d)\s*_\s*\{?\s*(?P<base>\d+)\s*\}?$")  # the base of the numeral: 2516_8


def without_unit(text: str) -> tuple[str, str]:
    """Cut the unit off: what stands before it, and the unit where it is one that measures, or a numeral's base; ("the
    text", "") where none is."""
    if match := BASE.search(text):
        return text[: match.start()], f"base {match['base']}"
    if (match := UNIT.search(text)) and not lone_letter(text, match):
        return text[: match.start()], spell_unit(match["unit"])
    for pattern in (NAME, BARE):
        if (match := pattern.search(text)) and names_things(match["name"]):
            return match["number"] if pattern is BARE else text[: match.start()], ""
    return text, ""


def same_unit(gold: str, answer: str) -> bool:
    """Tell whether two answers may be held against each other: a unit may be left out, and a numeral's base where the
    gold answer has it."""
    return answer in ("", gold) or (gold == "" and (answer == "base 10" or not answer.startswith("base")))


def lone_letter(text: str, found: re.Match[str]) -> bool:
    """Tell whether it is one letter that touches what is before it, so that it is a variable."""
    return len(found["unit"].rstrip(".")) == 1 and found.start() == found.start("unit")


def names_things(name: str) -> bool:
    """Tell whether the words are a name of things counted, such as apples."""
    words = name.split()
    return (
        0 < len(words) <= 3
        and all(re.fullmatch(r"[A-Za-z-]{2,}\.?", word) for word in words)
        and not {word.lower() for word in words} & set(MEANING)
    )


def spell_unit(unit: str) -> str:
    """Write a unit in one spelling."""
    bare = re.sub(rf"{LATEX}|[\s{{}}.~]|\\[,;: ]|\\cdot", "", unit).replace("per", "/")
    return ALIKE.get(bare, bare)
