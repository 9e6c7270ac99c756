"""Operators of the kernel IR's `Instr`.

arithmetic  add sub mul div neg abs min max fma sqrt floor ceil trunc round copysign rem
            Floats are IEEE, nothing reordered or contracted except `fma(a, b, c) = a*b + c` with
            one rounding. min and max give NaN when either side is NaN, and of equals the
            second (zeros have signs). round is to nearest even.
            Integers wrap; div and rem truncate; shl and shr by the width or more give 0 (or the
            sign); division by zero and INT_MIN / -1 give 0 and never trap.
dot         dot(a, b, sum){unit}: in each lane sum plus the products of the numbers that are packed
            in the words (i32) a and b; `unit` names one of core/target/dot_units.py's that works on
            vectors, which says of what type the numbers are and how the products are added. Units
            that mean the same are interchangeable: a target takes the best instruction it has.
            Of one that works on blocks a has a word (i64) for each row, b one for each column, and
            sum[row * columns + column] gets the products of these two.
tiles       tile_zero(): zeros, or +0.0; tile_dot(a, b, sum){unit}: each sum[i, j] plus the
            products of row i of a and column j of b, as a dot unit that works on tiles
            adds them: a[i, k] with b[k div group, j * group + k mod group]. Any shape goes up
            to the unit's own.
bits        and or xor not shl shr        (bool too for the first four)
compare     eq ne lt le gt ge -> bool     (ordered: false with NaN, except ne: true)
select      select(cond, a, b)
convert     cast    to the result's dtype: to bool is != 0; cast(x){outside} of floats to integers
                    truncates, to u8 and i64 by way of i64, to others by way of i32, of which
                    narrower ones take the low bits. What does not fit there becomes
                    outside="lowest": the lowest integer, NaN too; "nearest": the nearest, NaN 0.
                    Eager does what the processor's conversion does; core/target/isa.py says which.
            bitcast the same bits as another type; its lanes may be fewer and wider, or more and
                    narrower, the first ones lowest
vectors     splat(x); iota() -> 0, 1, 2...; extract(v, lane); lane_mask(n) -> lanes < n (n: i64);
            reduce_add reduce_mul reduce_max reduce_min reduce_and reduce_or -> scalar,
            the upper half folded onto the lower until one lane is left (of an odd number the
            middle one waits a round); concat2(a, b), slice(v){start};
            interleave(a, b){half}: the lower (0) or upper (1) half of a0, b0, a1, b1, ...
math        exp exp2 expm1 log log1p log2 log10 sin cos tan asin acos atan sinh cosh tanh asinh
            acosh atanh erf erfc erfinv lgamma digamma i0 pow atan2 hypot nextafter sigmoid
            rsqrt, on f32 and f64, within 2 ulp of the correctly rounded value in f32
check       check(cond) -> bool: passes cond on, and when any lane is false sets status[0] to 1
            (`code` attr); used to report an index out of range after the kernel has run
"""

ARITHMETIC = frozenset(
    "add sub mul div neg abs min max fma sqrt floor ceil trunc round copysign rem".split()
)
BITS = frozenset("and or xor not shl shr".split())
COMPARE = frozenset("eq ne lt le gt ge".split())
OUTSIDE = frozenset("lowest nearest".split())
CONVERT = frozenset("cast bitcast".split())
REDUCE = frozenset("reduce_add reduce_mul reduce_max reduce_min reduce_and reduce_or".split())
VECTOR = frozenset("splat iota extract lane_mask concat2 interleave slice".split()) | REDUCE
MATH = frozenset(
    "exp exp2 expm1 log log1p log2 log10 sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh erf erfc erfinv lgamma digamma i0 pow atan2 hypot nextafter sigmoid rsqrt".split()
)
MATH_BINARY = frozenset("pow atan2 hypot nextafter".split())
TILE = frozenset("tile_zero tile_dot".split())
ALL = ARITHMETIC | BITS | COMPARE | CONVERT | VECTOR | MATH | TILE | {"select", "check", "dot"}
