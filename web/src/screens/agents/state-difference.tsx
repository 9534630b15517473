import type { ThreadState } from '@langchain/langgraph-sdk';
import { useMemo } from 'react';
import { showInvisible } from '../../components/text.tsx';
import { ExactNumber } from '../../components/values/exact-json.ts';
import { JsonTree } from '../../components/values/json-tree.tsx';

interface Difference {
  /** Such as `messages[2].content`. */
  readonly path: string;
  readonly before: unknown;
  readonly after: unknown;
}
const maxDifferences = 200;
const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !(value instanceof ExactNumber);

/** The differences between the states of two checkpoints. */
export function StateDifference({ before, after }: { readonly before: ThreadState; readonly after: ThreadState }) {
  const differences = useMemo(() => findDifferences(before.values, after.values), [before, after]);
  const name = ({ metadata }: ThreadState) => `step ${(metadata as { step?: number } | null)?.step ?? '–'}`;
  return (
    <section aria-label="Differences" className="stack">
      <h2>
        From {name(before)} to {name(after)}
      </h2>
      {differences.length === 0 && <p className="muted">The states are equal.</p>}
      {differences.length === maxDifferences && <p className="muted">The first {maxDifferences} differences:</p>}
      <ul className="agents-differences">
        {differences.map((each) => (
          <li key={each.path}>
            <code>{showInvisible(each.path)}</code>
            {each.before !== undefined && <Side label="before" sign="−" value={each.before} />}
            {each.after !== undefined && <Side label="after" sign="+" value={each.after} />}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Side({ label, sign, value }: { readonly label: string; readonly sign: string; readonly value: unknown }) {
  return (
    <div className={`agents-side-value ${label}`}>
      <span aria-hidden="true">{sign}</span>
      <span className="visually-hidden">{label}: </span>
      <JsonTree value={value} />
    </div>
  );
}

/** Compares objects by key and lists by index. Other values are compared as a whole. */
function findDifferences(before: unknown, after: unknown): readonly Difference[] {
  const found: Difference[] = [];
  const compare = (one: unknown, two: unknown, path: string): void => {
    if (found.length === maxDifferences || Object.is(one, two)) return;
    if (one instanceof ExactNumber && two instanceof ExactNumber && one.source === two.source) return;
    if (!isObject(one) || !isObject(two) || Array.isArray(one) !== Array.isArray(two)) {
      found.push({ path: path || '(state)', before: one, after: two });
      return;
    }
    for (const key of new Set([...Object.keys(one), ...Object.keys(two)])) {
      const step = Array.isArray(one) ? `[${key}]` : path === '' ? key : `.${key}`;
      compare(one[key], two[key], path + step);
    }
  };
  compare(before, after, '');
  return found;
}
