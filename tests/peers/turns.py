# SPDX-License-Identifier: MIT
"""Who comes after whom. A GPU at its power limit runs what follows a weak kernel at a higher clock, for some 50 ms."""


def orders(n, least):
    """Orders of 0 ... n - 1, one for each round, at least so many. Within rounds, each comes after each other one equally often
    (E. J. Williams, 1949: designs balanced for residual effects), which takes n rounds, or 2 n where n is odd."""
    first = [(i + 1) // 2 if i % 2 else -(i // 2) for i in range(n)]  # 0, 1, -1, 2, -2, ...
    whole = max(2 * n if n % 2 else n, 1)
    for turn in range((least + whole - 1) // whole * whole):
        order = [(i + turn) % n for i in first]
        yield order[::-1] if n % 2 and turn // n % 2 else order


def unbalanced(n, least):
    """Pairs that follow each other more or less often than others; for the self-test."""
    after = {(a, b): 0 for a in range(n) for b in range(n) if a != b}
    rounds = list(orders(n, least))
    for order in rounds:
        if sorted(order) != list(range(n)):
            return [tuple(order)]
        for pair in zip(order, order[1:]):
            after[pair] += 1
    return [pair for pair, count in after.items() if count * n != len(rounds)]
