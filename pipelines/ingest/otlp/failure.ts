import { readHead } from './any-value.ts';
import { readFlag } from './scalars.ts';
import type { SpanContext } from './span-context.ts';
import { findAttribute, type SpanEvent } from './span-events.ts';

const statusOk = 1;
const statusError = 2;

/**
 * Writes the run's error as a JSON string; returns undefined if the span did not fail.
 *
 * A span failed if its status is ERROR, or if it recorded an exception and its status is not OK. The text is the
 * message of the last exception, otherwise the status message, the exception type or `Error`; the stack trace of the
 * exception follows. Spans of the LangSmith SDK differ: the SDK sets OK before the outcome is known, and its exception
 * message is the complete error, with the SDK's own stack trace.
 */
export function writeFailure(context: SpanContext, events: readonly SpanEvent[]): Buffer | undefined {
  const { span, out } = context;
  const traceable = span.find('traceable');
  const isSdkSpan = traceable >= 0 && readFlag(context, traceable);
  const exception = events.findLast(({ name }) => name === 'exception');
  if (span.statusCode !== statusError && (exception === undefined || (span.statusCode === statusOk && !isSdkSpan))) {
    return undefined;
  }
  const start = out.position;
  out.text(buildErrorText(context, exception, isSdkSpan));
  return out.since(start);
}

function buildErrorText(context: SpanContext, exception: SpanEvent | undefined, isSdkSpan: boolean): string {
  const { start, end } = context.span.statusMessage;
  const status = context.text(start, end);
  const type = readTextAttribute(context, exception, 'exception.type');
  const message = readTextAttribute(context, exception, 'exception.message');
  const base = message || status || type || 'Error';
  if (isSdkSpan) return base;
  const stack = readTextAttribute(context, exception, 'exception.stacktrace');
  return stack === '' ? base : `${base}\n\n${stack}`;
}

function readTextAttribute(context: SpanContext, event: SpanEvent | undefined, name: string): string {
  const index = event === undefined ? -1 : findAttribute(event.attributes, name);
  if (event === undefined || index < 0) return '';
  const value = readHead(context.reader, event.attributes.valueStarts[index]!, event.attributes.valueEnds[index]!);
  return value.kind === 'string' ? context.text(value.start, value.end) : '';
}
