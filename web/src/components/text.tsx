import { formatTime, formatUtc, parseTime } from './format.ts';

/**
 * Control and format characters, which can change the direction of text or have no width; not tab, line breaks, joiners of
 * emoji, and non-joiners between letters of scripts that are spelt with them, such as Persian.
 */
const invisible =
  /(?![\t\r\n\u200d]|(?<=[\p{scx=Arab}\p{scx=Deva}\p{scx=Beng}\p{scx=Gujr}\p{scx=Taml}\p{scx=Telu}\p{scx=Knda}\p{scx=Mlym}])\u200c(?=\p{L}))[\p{Cc}\p{Cf}]/gu;

/** Returns `text` with invisible characters as their code points, so that no value can look like another one. */
export function showInvisible(text: string): string {
  return text.replace(invisible, (found) => `⟨U+${found.codePointAt(0)?.toString(16).toUpperCase().padStart(4, '0')}⟩`);
}

/** A value of a client, as text on one line. */
export function Value({ text, title = text }: { readonly text: string; readonly title?: string }) {
  return (
    <span className="value clip" title={showInvisible(title.slice(0, 500))}>
      {showInvisible(text.slice(0, 500)).replaceAll('\n', ' ')}
    </span>
  );
}

/** A cell of a table with a {@link Value}. */
export function TextCell({ text }: { readonly text: string }) {
  return (
    <td className="text-cell">
      <Value text={text} />
    </td>
  );
}

/** A time in the zone of the viewer, with UTC as its tooltip. */
export function Time({ at }: { readonly at: string | null | undefined }) {
  if (!at) return <span className="muted">–</span>;
  const time = parseTime(at);
  return (
    <time dateTime={time.toISOString()} title={formatUtc(time)}>
      {formatTime(time, new Date())}
    </time>
  );
}

/** A cell of a table with a {@link Time}. */
export function TimeCell({ at }: { readonly at: string | null | undefined }) {
  return (
    <td>
      <Time at={at} />
    </td>
  );
}

/** The head of a column of buttons, whose name only readers that do not see it need. */
export function ActionsHead() {
  return (
    <th>
      <span className="visually-hidden">Actions</span>
    </th>
  );
}
