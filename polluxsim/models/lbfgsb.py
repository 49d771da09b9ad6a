"""The steps of L-BFGS-B, a bound-constrained quasi-Newton method, compiled for a handful of variables.

The matrices have the compact form of the first paper, and sums are taken in its order. More accurate sums would end one
fit of fifty at another point than in the published results. No linear algebra library computes sums here, so results do
not depend on the processor.

n is the number of variables and c the number of remembered steps. The approximate Hessian is B = θI − W M Wᵀ with
W = [Y θS], shape (n, 2c), and M⁻¹ = [[−D, Lᵀ], [L, θSᵀS]]. D and L are the diagonal of SᵀY and the part below it.

Source: R. H. Byrd, P. Lu, J. Nocedal, C. Zhu, "A limited memory algorithm for bound constrained optimization", SIAM
J. Sci. Comput. 16 (1995); projection of the subspace step: J. L. Morales and J. Nocedal, ACM TOMS 38 (2011).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polluxsim.common.kernels import helper

Array = NDArray[np.float64]

EPSILON = float(np.finfo(np.float64).eps)


class HessianPairs(NamedTuple):
    """The approximate Hessian."""

    steps: Array  # S, the last steps, oldest first, shape (c, n)
    changes: Array  # Y, the changes of the gradient along them, shape (c, n)
    theta: float  # θ, the scale of the matrix before the first of them
    products: Array  # SᵀY, shape (c, c)
    root: Array  # Cholesky factor of θSᵀS + L D⁻¹ Lᵀ, shape (c, c)


class CauchyPoint(NamedTuple):
    """The first minimum along the projected gradient path."""

    point: Array  # shape (n,)
    free: NDArray[np.bool_]  # which variables are not held at a bound there, shape (n,)
    moved: Array  # Wᵀ times the way to it, shape (2c,)


@helper
def dot(a: Array, b: Array) -> float:
    """Return the inner product, summed in order."""
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@helper
def add_scaled(target: Array, scale: float, vector: Array) -> None:
    """Add `scale` times a vector to `target`.

    An array expression would take a second to compile at each use.
    """
    for i in range(target.size):
        target[i] += scale * vector[i]


@helper
def difference(a: Array, b: Array) -> Array:
    """Return a − b."""
    result = np.empty(a.size)
    for i in range(a.size):
        result[i] = a[i] - b[i]
    return result


@helper
def projected_gradient_norm(x: Array, gradient: Array, lower: Array, upper: Array) -> float:
    """Return the largest component of the gradient step within the bounds; arrays of shape (n,)."""
    largest = 0.0
    for i in range(x.size):
        # A step against the gradient, cut off at the bound that it would cross.
        if gradient[i] < 0:
            component = max(x[i] - upper[i], gradient[i])
        else:
            component = min(x[i] - lower[i], gradient[i])
        largest = max(largest, abs(component))
    return largest


@helper
def remember(steps: Array, changes: Array, theta: float) -> tuple[HessianPairs, bool]:
    """Return the approximate Hessian of these steps and changes, and whether it is positive definite."""
    count = steps.shape[0]
    products = np.empty((count, count))
    middle = np.empty((count, count))
    for i in range(count):
        for j in range(count):
            products[i, j] = dot(steps[i], changes[j])
    for i in range(count):
        for j in range(i + 1):
            middle[i, j] = theta * dot(steps[i], steps[j])
            for k in range(j):
                middle[i, j] += products[i, k] * products[j, k] / products[k, k]
    definite = _factorise(middle)
    return HessianPairs(steps, changes, theta, products, middle), definite


@helper
def cauchy_point(x: Array, gradient: Array, lower: Array, upper: Array, memory: HessianPairs) -> CauchyPoint:
    """Return the first minimiser of the quadratic model along the projected gradient path."""
    n = x.size
    count = memory.steps.shape[0]
    theta = memory.theta
    point = x.copy()
    direction = np.zeros(n)
    ends = np.empty(n)
    free = np.ones(n, dtype=np.bool_)
    along = np.zeros(2 * count)
    moved = np.zeros(2 * count)
    slope = 0.0
    for i in range(n):
        ends[i] = np.inf
        if gradient[i] < 0:
            ends[i] = (x[i] - upper[i]) / gradient[i]
        elif gradient[i] > 0:
            ends[i] = (x[i] - lower[i]) / gradient[i]
        if lower[i] == upper[i] or ends[i] <= 0.0:
            free[i] = False
            continue
        direction[i] = -gradient[i]
        slope -= direction[i] * direction[i]
        add_scaled(along, direction[i], _row(memory, i))
    if slope == 0.0:
        return CauchyPoint(point, free, moved)
    curvature = -theta * slope
    # Rounding could make the curvature 0 or less, and the minimum would then be at infinity.
    least_curvature = EPSILON * curvature
    curvature -= dot(_middle_product(memory, along), along)
    reached = 0.0
    for _ in range(n):
        i = _next_end(ends, free)
        if i < 0:
            break
        ahead = ends[i] - reached
        if -slope / curvature < ahead:
            break
        # The path bends here: variable i stays at its bound from now on.
        reached = ends[i]
        component = direction[i]
        point[i] = upper[i] if component > 0 else lower[i]
        direction[i] = 0.0
        free[i] = False
        squared = component * component
        way = point[i] - x[i]
        slope = slope + ahead * curvature + squared - theta * component * way
        curvature -= theta * squared
        if count:
            add_scaled(moved, ahead, along)
            row = _row(memory, i)
            product = _middle_product(memory, row)
            slope += component * dot(moved, product)
            curvature += 2.0 * component * dot(along, product) - squared * dot(row, product)
            add_scaled(along, -component, row)
        curvature = max(curvature, least_curvature)
    if _next_end(ends, free) >= 0:
        ahead = max(-slope / curvature, 0.0)
        reached += ahead
        add_scaled(moved, ahead, along)
        add_scaled(point, reached, direction)
    return CauchyPoint(point, free, moved)


@helper
def _next_end(ends: Array, free: NDArray[np.bool_]) -> int:
    """Return the free variable that reaches its bound first; −1 if no variable is free."""
    first = -1
    for i in range(ends.size):
        if free[i] and (first < 0 or ends[i] < ends[first]):
            first = i
    return first


@helper
def subspace_minimum(
    x: Array, gradient: Array, lower: Array, upper: Array, memory: HessianPairs, cauchy: CauchyPoint
) -> tuple[Array, bool]:
    """Minimise the quadratic model over the free variables, from the Cauchy point, within the bounds.

    Return the minimiser, shape (n,), and whether the matrix was positive definite on the free variables.
    """
    n = x.size
    theta = memory.theta
    point = cauchy.point
    free = cauchy.free
    product = _middle_product(memory, cauchy.moved)
    newton = np.zeros(n)
    for i in range(n):
        if free[i]:
            newton[i] = -theta * (point[i] - x[i]) - gradient[i] + dot(_row(memory, i), product)
    definite = _solve_on_free(memory, free, newton)
    if not definite:
        return point, False
    projected = point.copy()
    inside = True
    for i in range(n):
        if free[i]:
            projected[i] = min(max(point[i] + newton[i], lower[i]), upper[i])
            inside = inside and lower[i] < projected[i] < upper[i]
    # The projection can lead up. Then the step ends at the first bound. (Source: Morales and Nocedal.)
    if not inside and dot(difference(projected, x), gradient) > 0.0:
        _walk_to_bounds(point, newton, lower, upper, free, projected)
    return projected, True


@helper
def longest_step(x: Array, direction: Array, lower: Array, upper: Array) -> float:
    """Return the longest step along `direction` within the bounds, at most 1e10."""
    longest = 1e10
    for i in range(x.size):
        if direction[i] < 0.0:
            room = lower[i] - x[i]
            if room >= 0.0:
                return 0.0
            if direction[i] * longest < room:
                longest = room / direction[i]
        elif direction[i] > 0.0:
            room = upper[i] - x[i]
            if room <= 0.0:
                return 0.0
            if direction[i] * longest > room:
                longest = room / direction[i]
    return longest


@helper
def _row(memory: HessianPairs, i: int) -> Array:
    """Return row i of W, shape (2c,)."""
    count = memory.steps.shape[0]
    row = np.empty(2 * count)
    for k in range(count):
        row[k] = memory.changes[k, i]
        row[count + k] = memory.theta * memory.steps[k, i]
    return row


@helper
def _middle_product(memory: HessianPairs, vector: Array) -> Array:
    """Return M times a vector, shape (2c,), by the factors of its inverse."""
    count = memory.steps.shape[0]
    products = memory.products
    result = np.empty(2 * count)
    lower_part = np.empty(count)
    for i in range(count):
        lower_part[i] = vector[count + i]
        for k in range(i):
            lower_part[i] += products[i, k] * vector[k] / products[k, k]
    _solve_factorised(memory.root, lower_part)
    for i in range(count):
        total = 0.0
        for k in range(i + 1, count):
            total += products[k, i] * lower_part[k]
        result[i] = (total - vector[i]) / products[i, i]
        result[count + i] = lower_part[i]
    return result


@helper
def _solve_on_free(memory: HessianPairs, free: NDArray[np.bool_], vector: Array) -> bool:
    """Multiply `vector`, shape (n,), by B⁻¹ on the free variables; return whether B is positive definite there.

    If B is not, the vector stays as it is.

    The Sherman-Morrison-Woodbury formula is solved by blocks of the matrix [[−P, Rᵀ], [R, θSᵀS over the bound
    variables]], with P = D + YᵀY/θ and R = L − SᵀY over the free variables.
    """
    n = vector.size
    count = memory.steps.shape[0]
    theta = memory.theta
    steps = memory.steps
    changes = memory.changes
    block = np.zeros((count, count))
    coupling = np.zeros((count, count))
    rest = np.zeros((count, count))
    first = np.zeros(count)
    second = np.zeros(count)
    for a in range(count):
        for b in range(count):
            for i in range(n):
                if free[i]:
                    block[a, b] += changes[a, i] * changes[b, i] / theta
                    if a <= b:
                        coupling[b, a] -= steps[a, i] * changes[b, i]
                else:
                    rest[a, b] += theta * steps[a, i] * steps[b, i]
                    if a > b:
                        coupling[b, a] += steps[a, i] * changes[b, i]
        block[a, a] += memory.products[a, a]
        for i in range(n):
            if free[i]:
                first[a] += changes[a, i] * vector[i]
                second[a] += theta * steps[a, i] * vector[i]
    if not _factorise(block):
        return False
    # From here `coupling`, Rᵀ at first, is C⁻¹Rᵀ, where C is the factor of P.
    for b in range(count):
        _forward(block, coupling[:, b])
    _forward(block, first)
    for a in range(count):
        for b in range(count):
            rest[a, b] += dot(coupling[:, a], coupling[:, b])
        second[a] += dot(coupling[:, a], first)
    if not _factorise(rest):
        return False
    _solve_factorised(rest, second)
    for a in range(count):
        first[a] = dot(coupling[a], second) - first[a]
    _backward(block, first)
    for i in range(n):
        if free[i]:
            for k in range(count):
                vector[i] += changes[k, i] * first[k] / theta + steps[k, i] * second[k]
            vector[i] /= theta
    return True


@helper
def _walk_to_bounds(  # type: ignore[no-untyped-def]
    point, step, lower, upper, free, result
):
    """Write `point` plus the largest part of `step` within the bounds to `result`; all of shape (n,).

    Only free variables change.
    """
    share = 1.0
    blocking = -1
    for i in range(point.size):
        if free[i] and step[i] != 0.0:
            room = (upper[i] if step[i] > 0 else lower[i]) - point[i]
            if room / step[i] < share:
                share = room / step[i]
                blocking = i
    for i in range(point.size):
        if free[i]:
            result[i] = point[i] + share * step[i]
    if blocking >= 0:  # exactly at its bound, which the sum above can miss by rounding
        result[blocking] = upper[blocking] if step[blocking] > 0 else lower[blocking]


@helper
def _factorise(matrix: Array) -> bool:
    """Replace the lower triangle of a symmetric matrix by its Cholesky factor.

    Return whether the matrix is positive definite. If it is not, the factor is not complete.
    """
    for i in range(matrix.shape[0]):
        for j in range(i + 1):
            for k in range(j):
                matrix[i, j] -= matrix[i, k] * matrix[j, k]
            if i > j:
                matrix[i, j] /= matrix[j, j]
            elif matrix[i, i] <= 0.0:
                return False
            else:
                matrix[i, i] = np.sqrt(matrix[i, i])
    return True


@helper
def _forward(factor: Array, vector: Array) -> None:
    """Solve C x = `vector` in place, where C is a lower triangular factor; shapes (c, c) and (c,)."""
    for i in range(vector.size):
        for k in range(i):
            vector[i] -= factor[i, k] * vector[k]
        vector[i] /= factor[i, i]


@helper
def _backward(factor: Array, vector: Array) -> None:
    """Solve Cᵀ x = `vector` in place, where C is a lower triangular factor; shapes (c, c) and (c,)."""
    for i in range(vector.size - 1, -1, -1):
        for k in range(i + 1, vector.size):
            vector[i] -= factor[k, i] * vector[k]
        vector[i] /= factor[i, i]


@helper
def _solve_factorised(factor: Array, vector: Array) -> None:
    """Solve C Cᵀ x = `vector` in place, where C is a Cholesky factor; shapes (c, c) and (c,)."""
    _forward(factor, vector)
    _backward(factor, vector)
