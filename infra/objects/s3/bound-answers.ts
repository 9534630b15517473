import type { S3Client } from '@aws-sdk/client-s3';
import { readAtMost } from '../read-at-most.ts';

/** Larger than any response of the S3 API about one object. */
const maxAnswerBytes = 256 * 1024;

/**
 * Limits the size of responses. The S3 client buffers each response in memory, and an endpoint that a user chooses may
 * send an endless one. A longer response is truncated, and the client then fails to parse it. Contents of objects are
 * excluded: their caller limits them.
 */
export function boundAnswers(client: S3Client): void {
  client.middlewareStack.add(
    (next, context) => async (args) => {
      const result = await next(args);
      const response = result.response as { statusCode?: number; body?: unknown } | undefined;
      const isContents = context.commandName === 'GetObjectCommand' && (response?.statusCode ?? 0) < 300;
      if (response && !isContents && isStream(response.body)) {
        response.body = await readAtMost(response.body, maxAnswerBytes);
      }
      return result;
    },
    { step: 'deserialize', priority: 'low', name: 'boundAnswers' },
  );
}

const isStream = (body: unknown): body is AsyncIterable<Buffer> =>
  typeof body === 'object' && body !== null && Symbol.asyncIterator in body;
