"""Evaluate arithmetic in a text without `eval`: numbers, + - * / // % ** and brackets, within bounds."""

import ast
import math
import operator
from collections.abc import Callable
from decimal import ROUND_FLOOR, Decimal, DivisionByZero, InvalidOperation, Overflow, localcontext

__all__ = ("ArithmeticFault", "calculate_text")

LONGEST = 200
"""maximum number of characters of an expression"""

LARGEST = 300
"""maximum number of digits of a value before the decimal point; this also limits the time to compute a power"""

_SHORT = 50
"""maximum number of digits of a value that is written without an exponent"""

_SIGNS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "^": "**"})

_BINARY: dict[type[ast.operator], Callable[[Decimal, Decimal], Decimal]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda left, right: left / right,
    ast.FloorDiv: lambda left, right: (left / right).to_integral_value(ROUND_FLOOR),
    ast.Mod: lambda left, right: left - right * (left / right).to_integral_value(ROUND_FLOOR),
}


class ArithmeticFault(ValueError):
    """The text is not arithmetic, or its value is out of bounds."""


def calculate_text(expression: str) -> str:
    """Return the value of an expression as text: "391" for "17 × 23".

    Whole numbers are exact; others are rounded to 15 decimal places.

    Raises:
        ArithmeticFault: the expression is invalid or out of bounds; the text says why.
    """
    if len(expression) > LONGEST:
        raise ArithmeticFault(f"longer than {LONGEST} characters")
    try:
        tree = ast.parse(expression.translate(_SIGNS).strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ArithmeticFault("not an arithmetic expression") from None
    # Whole numbers are exact: the precision exceeds the largest number of digits.
    with localcontext(prec=LARGEST + 20) as context:
        context.Emax, context.Emin = LARGEST, -LARGEST
        try:
            return _text(_value(tree.body))
        except DivisionByZero:
            raise ArithmeticFault("division by zero") from None
        except Overflow:
            raise ArithmeticFault("the value is too large") from None
        except InvalidOperation:
            raise ArithmeticFault("the value is undefined or too large") from None


def _value(node: ast.expr) -> Decimal:
    match node:
        case ast.Constant(value=bool()):
            raise ArithmeticFault("not a number")
        case ast.Constant(value=int() | float() as number):
            # `repr` of a float is the number as it was written, unless the number was too large for a float.
            if number == math.inf:
                raise Overflow
            return +Decimal(repr(number))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left), _value(right))
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _BINARY:
            return _BINARY[type(sign)](_value(left), _value(right))
        case _:
            raise ArithmeticFault("only numbers, + - * / // % ** and brackets are understood")


def _power(base: Decimal, exponent: Decimal) -> Decimal:
    if abs(exponent) > 1_000:
        raise ArithmeticFault("the exponent is over 1000")
    if base == 0 and exponent < 0:
        raise ArithmeticFault("division by zero")
    return base**exponent


def _text(value: Decimal) -> str:
    """Return a value as text without trailing zeros. A value with many digits is written with an exponent."""
    is_whole = value == value.to_integral_value()
    if is_whole and value.adjusted() < _SHORT:
        return f"{value.to_integral_value():f}"
    if -6 < value.adjusted() < _SHORT:
        return f"{round(value, 15).normalize():f}"
    return f"{value:.16g}"
