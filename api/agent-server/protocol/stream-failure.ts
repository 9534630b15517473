import { fault } from '../../../infra/errors/runlake-error.ts';
import { endHasHole } from '../../../pipelines/agents/execute/end-data.ts';
import type { StreamedEvent } from '../../../pipelines/agents/streams/stream-ports.ts';
import { errorOfStream } from '../streaming/sse.ts';
import type { CommandError } from './command.ts';

/**
 * What readers are told where the stream itself fails: an error that answers no command. Source: `@langchain/protocol` 0.0.21,
 * ErrorResponse, whose codes say nothing of streams; what the stock clients tell of by `onError`, or raise.
 */
export function streamFailure(err: unknown): CommandError {
  const { error, message } = errorOfStream(err);
  return { type: 'error', id: null, error: 'unknown_error', message: `${error}: ${message}` };
}

/** The same of an end before which events are missing, which the reader gets before that end. */
export function missingEvents({ isEnd, data }: StreamedEvent): CommandError | undefined {
  return isEnd && endHasHole(data) ? streamFailure(fault('STREAM_INCOMPLETE')) : undefined;
}
