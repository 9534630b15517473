import { useDeferredValue, useMemo, useState } from 'react';
import { CopyButton } from '../copy-button.tsx';
import { SearchField } from '../search-field.tsx';
import { showInvisible } from '../text.tsx';
import { formatExact } from './exact-json.ts';
import { JsonTree, LongText, PartialList } from './json-tree.tsx';
import { findMessages, type Message, type MessagePart } from './messages.ts';
import './values.css';

type Form = 'Messages' | 'JSON' | 'Text';
const maxText = 20_000;
const maxMarks = 1000;
/** Roles whose messages have a colour. Other roles are no class names: a role can be that of any class. */
const coloredRoles: ReadonlySet<string> = new Set(['user', 'assistant', 'tool', 'system']);

/** Inputs or outputs as a conversation, a JSON tree, or text with a search. */
export function ValueView({ title, value }: { readonly title: string; readonly value: unknown }) {
  const messages = useMemo(() => findMessages(value), [value]);
  const [chosen, setForm] = useState<Form>();
  const form = chosen && (chosen !== 'Messages' || messages) ? chosen : messages ? 'Messages' : 'JSON';
  const forms: readonly Form[] = messages ? ['Messages', 'JSON', 'Text'] : ['JSON', 'Text'];
  return (
    <section className="value-view" aria-label={title}>
      <header className="row">
        <h2>{title}</h2>
        <span className="spacer" />
        <fieldset className="forms">
          <legend className="visually-hidden">Form of {title.toLowerCase()}</legend>
          {forms.map((each) => (
            <button
              key={each}
              type="button"
              className="chip"
              aria-pressed={each === form}
              onClick={() => setForm(each)}
            >
              {each}
            </button>
          ))}
        </fieldset>
        <CopyButton label="Copy" className="chip" text={() => formatExact(value)} />
      </header>
      {form === 'Messages' && messages ? (
        <Conversation messages={messages} />
      ) : form === 'JSON' ? (
        <JsonTree value={value} />
      ) : (
        <SearchableText text={toText(value)} label={title} />
      )}
    </section>
  );
}

/** Messages with their roles, images and calls of tools; of many, the first and last ones until the viewer asks for more. */
export function Conversation({ messages }: { readonly messages: readonly Message[] }) {
  return (
    <ol className="conversation">
      <PartialList items={messages} last={50} buttonIn="li">
        {({ role, name, parts, toolCalls }, index) => (
          <li key={index} className={coloredRoles.has(role) ? `message ${role}` : 'message'}>
            <div className="message-role">
              {showInvisible(role)}
              {name !== undefined && <span className="muted"> {showInvisible(name)}</span>}
            </div>
            <PartialList items={parts} last={50}>
              {(part, at) => <Part key={at} part={part} />}
            </PartialList>
            <PartialList items={toolCalls} last={50}>
              {(each, at) => (
                <div key={at} className="tool-call">
                  <span className="muted">calls</span> <code>{showInvisible(each.name)}</code>
                  <JsonTree value={each.arguments} />
                </div>
              )}
            </PartialList>
          </li>
        )}
      </PartialList>
    </ol>
  );
}

function Part({ part }: { readonly part: MessagePart }) {
  if (part.kind === 'text') return <LongText text={part.text} maxLength={maxText} />;
  if (part.kind === 'image') return <img src={part.url} alt="Part of the message" className="message-image" />;
  return <JsonTree value={part.value} />;
}

/** Returns the only text of an object, such as `{"text": "…"}`, or else the value as JSON. */
function toText(value: unknown): string {
  if (typeof value === 'string') return value;
  const values = typeof value === 'object' && value !== null ? Object.values(value) : [];
  return values.length === 1 && typeof values[0] === 'string' ? values[0] : formatExact(value);
}

function SearchableText({ text, label }: { readonly text: string; readonly label: string }) {
  const [search, setSearch] = useState('');
  const wanted = useDeferredValue(search);
  const parts = useMemo(() => splitAt(text, wanted), [text, wanted]);
  return (
    <div className="stack">
      <div className="row">
        <SearchField
          label={`Find in ${label.toLowerCase()}`}
          placeholder="Find in the text"
          hasShortcut={false}
          value={search}
          onChange={setSearch}
        />
        {wanted !== '' && <span className="muted">{describeMatches((parts.length - 1) / 2)}</span>}
      </div>
      <pre className="text-view">
        {parts.length === 1 ? (
          <LongText text={text} maxLength={maxText} />
        ) : (
          parts.map((part, index) =>
            index % 2 === 1 ? <mark key={index}>{showInvisible(part)}</mark> : showInvisible(part),
          )
        )}
      </pre>
    </div>
  );
}

function describeMatches(count: number): string {
  return count >= maxMarks ? `${maxMarks} matches or more` : `${count} ${count === 1 ? 'match' : 'matches'}`;
}

/** Splits a text at the matches. Matches have odd indexes, the text between them has even indexes. */
function splitAt(text: string, wanted: string): readonly string[] {
  if (wanted === '') return [text];
  const lower = text.toLowerCase();
  const parts: string[] = [];
  let from = 0;
  while (parts.length < 2 * maxMarks) {
    const at = lower.indexOf(wanted.toLowerCase(), from);
    if (at < 0) break;
    parts.push(text.slice(from, at), text.slice(at, at + wanted.length));
    from = at + wanted.length;
  }
  return parts.length === 0 ? [text] : [...parts, text.slice(from)];
}
