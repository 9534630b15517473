import { round } from '../figures.ts';

export interface Measured {
  readonly value: number;
  readonly target: number;
  readonly higherIsBetter: boolean;
}

export function atLeast(target: number, value: number): Measured {
  return { value, target, higherIsBetter: true };
}

export function atMost(target: number, value: number): Measured {
  return { value, target, higherIsBetter: false };
}

/**
 * Each value with its target, as fields of a bench's output line, and the worst result relative to its target: 1 means
 * that the target is just met, more is better.
 */
export function againstTargets(measured: Readonly<Record<string, Measured>>): Record<string, number | boolean> {
  const members = Object.entries(measured).flatMap(([name, { value, target }]) => [
    [name, round(value, 3)],
    [`${name}_target`, round(target, 3)],
  ]);
  const shares = Object.values(measured).map(({ value, target, higherIsBetter }) =>
    higherIsBetter ? value / target : target / Math.max(value, Number.EPSILON),
  );
  return { ratio: round(Math.min(...shares), 3), target: 1, higher_is_better: true, ...Object.fromEntries(members) };
}
