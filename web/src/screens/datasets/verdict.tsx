import type { Verdict } from './comparison.ts';

/** A difference to the first experiment, as a number with a sign and a word; nothing without a difference. */
export function Difference({ verdict, text }: { readonly verdict: Verdict | undefined; readonly text: string }) {
  if (verdict === undefined || verdict === 'equal') return null;
  return (
    <span className={`verdict ${verdict}`}>
      {text} <span className="verdict-word">{verdict}</span>
    </span>
  );
}

/** Formats a difference with its sign, such as `+0.5`. */
export function formatDifference(first: number | undefined, other: number | undefined, format: (n: number) => string) {
  if (first === undefined || other === undefined) return '';
  const difference = other - first;
  return `${difference < 0 ? '−' : '+'}${format(Math.abs(difference))}`;
}
