import type { S3Client } from '@aws-sdk/client-s3';
import { readAtMost } from '../read-at-most.ts';

/** More than any answer of the S3 API about one object has. */
const maxAnswerBytes = 256 * 1024;

/**
 * The S3 client keeps whatever comes back in memory until it ends. At an address that anybody may name there need not be an
 * end: what is longer is cut off, and then no answer of the S3 API. The contents of objects are read by who asked for them.
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
