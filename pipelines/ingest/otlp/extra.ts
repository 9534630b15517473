import { writeUnwrapped } from './any-value.ts';
import { writeParameters } from './invocation-parameters.ts';
import { writeMetadata } from './metadata.ts';
import { writeOtel } from './otel-details.ts';
import type { SharedMetadata } from './shared-metadata.ts';
import type { SpanContext } from './span-context.ts';

/** Writes the run's `extra`: `metadata`, and if present `invocation_params`, the SDK's `runtime`, and `otel`. */
export function writeExtra(context: SpanContext, shared: SharedMetadata, hasOwnIds: boolean): Buffer {
  const { out, span } = context;
  const start = out.position;
  out.byte(0x7b);
  writeParameters(context);
  const runtime = span.find('runtime');
  if (runtime >= 0) {
    out.ascii(out.position === start + 1 ? '"runtime":' : ',"runtime":');
    writeUnwrapped(context, span.attributes.valueStarts[runtime]!, span.attributes.valueEnds[runtime]!);
    span.take(runtime);
  }
  out.ascii(out.position === start + 1 ? '"metadata":' : ',"metadata":');
  // Metadata comes after the other fields, because it contains the attributes that none of them took.
  writeMetadata(context, shared);
  writeOtel(context, hasOwnIds);
  out.byte(0x7d);
  return out.since(start);
}
