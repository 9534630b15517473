import { diffLines, diffWordsWithSpace } from 'diff';
import { useMemo, useState } from 'react';
import { showInvisible } from './text.tsx';
import './text-diff.css';

/**
 * Maximum time for a comparison, so that no text blocks the page. After it, the texts are shown one after the other.
 */
const timeoutMs = 1000;
/** Number of equal lines that are shown before and after a change. */
const contextLines = 3;
/** Lines longer than this are compared only as a whole. */
const maxWordCompared = 2000;
/** Maximum number of adjacent changed lines whose words are compared. */
const maxPairs = 100;
/** Number of lines that are rendered until the viewer asks for more. */
const maxRows = 1000;

interface DiffPart {
  readonly text: string;
  readonly isChanged: boolean;
}
interface DiffLine {
  readonly kind: 'same' | 'removed' | 'added';
  readonly parts: readonly DiffPart[];
}
/** A line, or a group of equal lines that is hidden at first. */
type Row = DiffLine | { readonly hidden: readonly DiffLine[] };

/** The difference between two texts, line by line, with the words that changed. */
export function TextDiff({
  label,
  before,
  after,
}: {
  readonly label: string;
  readonly before: string;
  readonly after: string;
}) {
  const rows = useMemo(() => compareTexts(before, after), [before, after]);
  const [count, setCount] = useState(maxRows);
  if (before === after) return <p className="muted">No difference.</p>;
  return (
    <div className="diff mono" role="region" aria-label={label} tabIndex={0}>
      {rows
        .slice(0, count)
        .map((row, index) =>
          'hidden' in row ? <HiddenLines key={index} lines={row.hidden} /> : <Line key={index} line={row} />,
        )}
      {rows.length > count && (
        <button type="button" className="diff-hidden" onClick={() => setCount(count + maxRows)}>
          Show more of {rows.length - count} lines
        </button>
      )}
    </div>
  );
}

function HiddenLines({ lines }: { readonly lines: readonly DiffLine[] }) {
  const [count, setCount] = useState(0);
  return (
    <>
      {lines.slice(0, count).map((line, index) => (
        <Line key={index} line={line} />
      ))}
      {lines.length > count && (
        <button type="button" className="diff-hidden" onClick={() => setCount(count + maxRows)}>
          Show {lines.length - count} equal lines
        </button>
      )}
    </>
  );
}

const signs = { same: ' ', removed: '−', added: '+' } as const;

function Line({ line: { kind, parts } }: { readonly line: DiffLine }) {
  const Mark = kind === 'removed' ? 'del' : kind === 'added' ? 'ins' : 'span';
  return (
    <div className={`diff-line ${kind}`}>
      <span className="diff-sign" aria-hidden="true">
        {signs[kind]}
      </span>
      <Mark className="value">
        {kind !== 'same' && <span className="visually-hidden">{kind}: </span>}
        {parts.map(({ text, isChanged }, index) =>
          isChanged ? <strong key={index}>{showInvisible(text)}</strong> : showInvisible(text),
        )}
      </Mark>
    </div>
  );
}

function compareTexts(before: string, after: string): readonly Row[] {
  const changes = diffLines(before, after, { timeout: timeoutMs });
  if (changes === undefined) return [...toLines('removed', before), ...toLines('added', after)];
  const lines: DiffLine[] = [];
  for (let at = 0; at < changes.length; at++) {
    const change = changes[at];
    const next = changes[at + 1];
    if (!change) continue;
    if (change.removed && next?.added && change.count === next.count && change.count <= maxPairs) {
      for (const line of pairLines(splitLines(change.value), splitLines(next.value))) lines.push(line);
      at++;
    } else {
      const kind = change.removed ? 'removed' : change.added ? 'added' : 'same';
      for (const line of toLines(kind, change.value)) lines.push(line);
    }
  }
  return foldEqual(lines);
}

/** Returns the removed lines, then the added lines that replace them, with the changed words marked. */
function pairLines(removed: readonly string[], added: readonly string[]): readonly DiffLine[] {
  const pairs = removed.map((text, index) => compareWords(text, added[index] ?? ''));
  return [
    ...pairs.map(([parts]): DiffLine => ({ kind: 'removed', parts })),
    ...pairs.map(([, parts]): DiffLine => ({ kind: 'added', parts })),
  ];
}

function compareWords(before: string, after: string): readonly [readonly DiffPart[], readonly DiffPart[]] {
  const words =
    before.length + after.length > maxWordCompared
      ? undefined
      : diffWordsWithSpace(before, after, { timeout: timeoutMs / 10 });
  if (words === undefined) return [[{ text: before, isChanged: false }], [{ text: after, isChanged: false }]];
  const toPart = ({ value, added, removed }: (typeof words)[number]) => ({ text: value, isChanged: added || removed });
  return [words.filter(({ added }) => !added).map(toPart), words.filter(({ removed }) => !removed).map(toPart)];
}

/** Hides equal lines that are far from a change. */
function foldEqual(lines: readonly DiffLine[]): readonly Row[] {
  const rows: Row[] = [];
  for (let at = 0; at < lines.length; ) {
    const isSame = lines[at]?.kind === 'same';
    let end = at;
    while (end < lines.length && (lines[end]?.kind === 'same') === isSame) end++;
    const from = at === 0 ? at : at + contextLines;
    const until = end === lines.length ? end : end - contextLines;
    const isLong = isSame && until - from > 1;
    for (let index = at; index < end; index++) {
      const line = lines[index];
      if (isLong && index === from) {
        rows.push({ hidden: lines.slice(from, until) });
        index = until - 1;
      } else if (line) rows.push(line);
    }
    at = end;
  }
  return rows;
}

function toLines(kind: DiffLine['kind'], text: string): readonly DiffLine[] {
  return splitLines(text).map((line) => ({ kind, parts: [{ text: line, isChanged: false }] }));
}

function splitLines(text: string): readonly string[] {
  return (text.endsWith('\n') ? text.slice(0, -1) : text).split('\n');
}
