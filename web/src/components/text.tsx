import { formatTime, formatUtc, parseTime } from './format.ts';

/** Control characters and characters that change the direction or the width of text; tab and line feed are none. */
const invisible = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

/** Returns `text` with invisible characters as their code points, so that no value can look like another one. */
export function showInvisible(text: string): string {
  return text.replace(invisible, (found) => `⟨U+${found.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}⟩`);
}

/** A value of a client, as text on one line. */
export function Value({ text, title = text }: { readonly text: string; readonly title?: string }) {
  return (
    <span className="value clip" title={showInvisible(title.slice(0, 500))}>
      {showInvisible(text.slice(0, 500)).replaceAll('\n', ' ')}
    </span>
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
