import { diffLines, diffWordsWithSpace } from 'diff';
import { useMemo, useState } from 'react';
import { showInvisible } from './text.tsx';
import './text-diff.css';

/** Time after which texts are called too different, so that no text can block the page. */
const timeoutMs = 1000;
/** Equal lines that are shown before and after a change. */
const contextLines = 3;
/** Lines longer than this are compared only as a whole. */
const maxWordCompared = 2000;
const maxLines = 2000;

interface DiffPart {
  readonly text: string;
  readonly isChanged: boolean;
}
interface DiffLine {
  readonly kind: 'same' | 'removed' | 'added';
  readonly parts: readonly DiffPart[];
}
/** Lines that are shown, or a number of equal lines that are not. */
type Block = { readonly lines: readonly DiffLine[] } | { readonly hidden: readonly DiffLine[] };

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
  const blocks = useMemo(() => compareTexts(before, after), [before, after]);
  if (before === after) return <p className="muted">No difference.</p>;
  if (blocks === undefined)
    return <p className="muted">The texts are too long and too different to be compared line by line.</p>;
  return (
    <div className="diff mono" role="region" aria-label={label} tabIndex={0}>
      {blocks.map((block, index) =>
        'hidden' in block ? (
          <HiddenLines key={index} lines={block.hidden} />
        ) : (
          block.lines.map((line, at) => <Line key={`${index}-${at}`} line={line} />)
        ),
      )}
    </div>
  );
}

function HiddenLines({ lines }: { readonly lines: readonly DiffLine[] }) {
  const [isOpen, setOpen] = useState(false);
  if (isOpen) return lines.map((line, index) => <Line key={index} line={line} />);
  return (
    <button type="button" className="diff-hidden" onClick={() => setOpen(true)}>
      Show {lines.length} equal lines
    </button>
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

/** Returns the lines of both texts; undefined if comparing them takes too long. */
function compareTexts(before: string, after: string): readonly Block[] | undefined {
  const changes = diffLines(before, after, { timeout: timeoutMs });
  if (changes === undefined) return undefined;
  const lines: DiffLine[] = [];
  for (let at = 0; at < changes.length && lines.length < maxLines; at++) {
    const change = changes[at];
    const next = changes[at + 1];
    if (!change) continue;
    if (change.removed && next?.added && change.count === next.count) {
      lines.push(...pairLines(splitLines(change.value), splitLines(next.value)));
      at++;
    } else {
      const kind = change.removed ? 'removed' : change.added ? 'added' : 'same';
      lines.push(...splitLines(change.value).map((text): DiffLine => ({ kind, parts: [{ text, isChanged: false }] })));
    }
  }
  return foldEqual(lines);
}

/** Returns removed lines before the added ones in their place, with the words that changed. */
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

function foldEqual(lines: readonly DiffLine[]): readonly Block[] {
  const blocks: Block[] = [];
  for (let at = 0; at < lines.length; ) {
    const isSame = lines[at]?.kind === 'same';
    let end = at;
    while (end < lines.length && (lines[end]?.kind === 'same') === isSame) end++;
    const from = at === 0 ? at : at + contextLines;
    const until = end === lines.length ? end : end - contextLines;
    if (isSame && until - from > 1)
      blocks.push(
        { lines: lines.slice(at, from) },
        { hidden: lines.slice(from, until) },
        { lines: lines.slice(until, end) },
      );
    else blocks.push({ lines: lines.slice(at, end) });
    at = end;
  }
  return blocks;
}

function splitLines(text: string): readonly string[] {
  return (text.endsWith('\n') ? text.slice(0, -1) : text).split('\n');
}
