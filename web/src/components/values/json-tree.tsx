import { type ReactNode, useState } from 'react';
import { Button } from '../button.tsx';
import { showInvisible } from '../text.tsx';
import { ExactNumber } from './exact-json.ts';
import './values.css';

const maxText = 2000;
const maxItems = 100;
/** Number of levels that are open at first. */
const openLevels = 2;

/**
 * A JSON value as a tree. Only open nodes are rendered, and long lists and texts only in part until the viewer asks.
 * Values from level {@link openLevels} on are closed at first.
 */
export function JsonTree({ value, level = 0 }: { readonly value: unknown; readonly level?: number }) {
  return (
    <div className="json mono">
      <JsonNode value={value} level={level} />
    </div>
  );
}

function JsonNode({ value, name, level }: { readonly value: unknown; readonly name?: string; readonly level: number }) {
  const entries = listEntries(value);
  const isSmall = entries !== undefined && entries.length <= 30;
  const [isOpen, setOpen] = useState(level < openLevels && (level === 0 || isSmall));
  const label = name === undefined ? null : <span className="json-key">{showInvisible(name)}</span>;
  if (entries === undefined)
    return (
      <div className="json-line">
        {label}
        <Scalar value={value} />
      </div>
    );
  const isList = Array.isArray(value);
  const summary = isList ? `[${entries.length}]` : `{${entries.length}}`;
  if (entries.length === 0)
    return (
      <div className="json-line">
        {label}
        <span className="muted">{isList ? '[]' : '{}'}</span>
      </div>
    );
  return (
    <div>
      <button type="button" className="json-toggle" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        <span className={isOpen ? 'json-arrow open' : 'json-arrow'} aria-hidden="true">
          ▸
        </span>
        {label}
        <span className="muted">{summary}</span>
      </button>
      {isOpen && (
        <div className="json-children">
          <PartialList items={entries}>
            {([key, each]) => <JsonNode key={key} name={key} value={each} level={level + 1} />}
          </PartialList>
        </div>
      )}
    </div>
  );
}

/** A hundred items of a list, and a button that shows more of them. */
export function PartialList<T>({
  items,
  last = 0,
  buttonIn: ButtonParent = 'div',
  children,
}: {
  readonly items: readonly T[];
  /** How many of the items are the last ones of the list. */
  readonly last?: number;
  readonly buttonIn?: 'div' | 'li';
  readonly children: (item: T, index: number) => ReactNode;
}) {
  const [count, setCount] = useState(maxItems);
  if (items.length <= count) return items.map(children);
  const lastIndex = items.length - last;
  return (
    <>
      {items.slice(0, count - last).map(children)}
      <ButtonParent>
        <Button onClick={() => setCount(count + 10 * maxItems)}>{items.length - count} more</Button>
      </ButtonParent>
      {items.slice(lastIndex).map((item, at) => children(item, lastIndex + at))}
    </>
  );
}

function listEntries(value: unknown): readonly (readonly [string, unknown])[] | undefined {
  if (typeof value !== 'object' || value === null || value instanceof ExactNumber) return undefined;
  return Object.entries(value);
}

function Scalar({ value }: { readonly value: unknown }) {
  if (typeof value === 'string')
    return (
      <span className="json-text">
        <LongText text={value} maxLength={maxText} />
      </span>
    );
  if (typeof value === 'number' || value instanceof ExactNumber)
    return <span className="json-number">{value instanceof ExactNumber ? value.source : String(value)}</span>;
  return <span className="json-literal">{String(value)}</span>;
}

/** Text with its line breaks; long text is cut until the viewer asks for all of it. */
export function LongText({ text, maxLength }: { readonly text: string; readonly maxLength: number }) {
  const [isWhole, setWhole] = useState(false);
  if (isWhole || text.length <= maxLength) return <span className="value long-text">{showInvisible(text)}</span>;
  return (
    <>
      <span className="value long-text">{showInvisible(text.slice(0, maxLength))}…</span>{' '}
      <Button onClick={() => setWhole(true)}>Show all {text.length.toLocaleString('en')} characters</Button>
    </>
  );
}
