import { isUtf8 } from 'node:buffer';
import type { JsonText } from './json-text.ts';
import type { ProtobufReader } from './protobuf.ts';
import { Span } from './span.ts';

/**
 * Returns the maximum nesting depth of attribute values, which is the same in both encodings. No instrumentation nests
 * deeper than 100.
 */
export function computeValueDepth(maxJsonDepth: number): number {
  return Math.min(maxJsonDepth, 100);
}

/** State shared by the steps that map one span. One object is reused for all spans of a request. */
export class SpanContext {
  readonly reader: ProtobufReader;
  readonly out: JsonText;
  /**
   * Maximum nesting depth of JSON in strings. A string that contains deeper JSON stays text. The scan is not recursive.
   */
  readonly maxJsonDepth: number;
  /** Maximum nesting depth of arrays and key-value lists, which are read recursively. */
  readonly maxDepth: number;
  readonly span = new Span();
  /** Metadata keys that already have a value; the first value of a key wins. */
  readonly written = new Set<string>();
  /** The usage object that was written, as JSON. */
  usage: Buffer | undefined;
  /** Run ids of spans that set their own run id, by `buildOverrideKey` (`span-fields.ts`). */
  readonly overrides = new Map<string, string>();
  /** Number of inner nodes of the span's attribute trees. */
  treeNodes = 0;
  /** Reason why the span is rejected; only the first reason is kept. */
  reason: string | undefined;

  constructor(reader: ProtobufReader, out: JsonText, maxJsonDepth: number) {
    this.reader = reader;
    this.out = out;
    this.maxJsonDepth = maxJsonDepth;
    this.maxDepth = computeValueDepth(maxJsonDepth);
  }

  begin(): void {
    this.written.clear();
    this.treeNodes = 0;
    this.reason = undefined;
    this.usage = undefined;
  }

  reject(reason: string): void {
    this.reason ??= reason;
  }

  /** Returns text of the body; rejects the span if the text is not UTF-8. */
  text(start: number, end: number): string {
    const { source } = this.reader;
    const text = source.toString('utf8', start, end);
    if (text.includes('\ufffd') && !isUtf8(source.subarray(start, end))) this.rejectInvalidUtf8(start);
    return text;
  }

  /** Writes bytes of the body as a JSON string; rejects the span if they are not UTF-8. */
  writeString(start: number, end: number): void {
    if (!this.out.string(this.reader.source, start, end)) this.rejectInvalidUtf8(start);
  }

  rejectInvalidUtf8(offset: number): void {
    this.reject(`invalid UTF-8 in the string at byte ${offset}`);
  }
}
