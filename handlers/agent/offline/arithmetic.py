"""Arithmetic from a text, without `eval`: numbers, + - * / // % ** and brackets, all within bounds."""

import ast
import math
import operator
from collections.abc import Callable
from decimal import ROUND_FLOOR, Decimal, DivisionByZero, InvalidOperation, Overflow, localcontext

__all__ = ("ArithmeticFault", "calculate_text")

LONGEST = 200
"""characters of an expression"""

LARGEST = 300
"""digits before the point; more are refused, which also bounds the time a power takes"""

_SHORT = 50
"""digits of a value that is written in full"""

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
    """The text is no arithmetic, or its value is out of bounds."""


def calculate_text(expression: str) -> str:
    """The value of an expression, "17 × 23" gives "391". Whole numbers are exact; others are rounded to 15 places.

    Raises:
        ArithmeticFault: names the fault.
    """
    if len(expression) > LONGEST:
        raise ArithmeticFault(f"longer than {LONGEST} characters")
    try:
        tree = ast.parse(expression.translate(_SIGNS).strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ArithmeticFault("not an arithmetic expression") from None
    # Within these bounds whole numbers are exact, as there are more digits than the largest has.
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
            # A float's shortest text is what was written, unless it was too large to be one.
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
    """In full where that is short, else with an exponent; without zeros at the end."""
    is_whole = value == value.to_integral_value()
    if is_whole and value.adjusted() < _SHORT:
        return f"{value.to_integral_value():f}"
    if -6 < value.adjusted() < _SHORT:
        return f"{round(value, 15).normalize():f}"
    return f"{value:.16g}"
