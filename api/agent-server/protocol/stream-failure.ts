import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { endHasGap } from '../../../pipelines/agents/execute/end-data.ts';
import type { StreamedEvent } from '../../../pipelines/agents/streams/stream-types.ts';
import { errorOfStream } from '../streaming/sse.ts';
import type { CommandError } from './command.ts';

/**
 * Builds the message for a failure of the stream itself: an error without a command id. Stock clients report it through
 * `onError` or raise it. Source: `@langchain/protocol` 0.0.21, ErrorResponse, which has no code for streams.
 */
export function streamFailure(err: unknown): CommandError {
  const { error, message } = errorOfStream(err);
  return { type: 'error', id: null, error: 'unknown_error', message: `${error}: ${message}` };
}

/** Builds the message for a gap in the events of a run; readers receive it before the end of the run. */
export function missingEvents({ isEnd, data }: StreamedEvent): CommandError | undefined {
  return isEnd && endHasGap(data) ? streamFailure(runlakeError('STREAM_INCOMPLETE')) : undefined;
}
