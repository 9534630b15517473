import { isUtf8 } from 'node:buffer';
import type { JsonText } from './json-text.ts';
import type { ProtobufReader } from './protobuf-reader.ts';
import { Span } from './span.ts';

/** What the steps of mapping one span share. One object serves all spans of a request in turn. */
export class SpanContext {
  readonly reader: ProtobufReader;
  readonly out: JsonText;
  /** How deep JSON inside strings may nest to be taken as JSON; it is scanned without recursion. */
  readonly maxJsonDepth: number;
  /** How deep arrays and lists of keys may nest; reading them recurses. */
  readonly maxDepth: number;
  readonly span = new Span();
  /** Metadata keys that have a value already: the first writer of a key wins. */
  readonly written = new Set<string>();
  /** The usage object that was written, as JSON. */
  usage: Buffer | undefined;
  /** The run id of spans that name one themselves, by {@link overrideKey}. */
  readonly overrides = new Map<string, string>();
  /** Why the span cannot be taken; the first reason stands. */
  reason: string | undefined;

  constructor(reader: ProtobufReader, out: JsonText, maxJsonDepth: number) {
    this.reader = reader;
    this.out = out;
    this.maxJsonDepth = maxJsonDepth;
    this.maxDepth = valueDepth(maxJsonDepth);
  }

  begin(): void {
    this.written.clear();
    this.reason = undefined;
    this.usage = undefined;
  }

  reject(reason: string): void {
    this.reason ??= reason;
  }

  /** Text of the body; the span is rejected where it is not UTF-8. */
  text(start: number, end: number): string {
    const { source } = this.reader;
    const text = source.toString('utf8', start, end);
    if (text.includes('\ufffd') && !isUtf8(source.subarray(start, end))) this.rejectUtf8(start);
    return text;
  }

  /** Writes bytes of the body as a JSON string. */
  writeString(start: number, end: number): void {
    if (!this.out.string(this.reader.source, start, end)) this.rejectUtf8(start);
  }

  rejectUtf8(offset: number): void {
    this.reject(`invalid UTF-8 in the string at byte ${offset}`);
  }
}

export function overrideKey(traceId: string, runId: string): string {
  return `${traceId}/${runId}`;
}

/** No instrumentation nests values deeper; the same limit holds in both encodings. */
export function valueDepth(maxJsonDepth: number): number {
  return Math.min(maxJsonDepth, 100);
}
