import { createHash, createHmac } from 'node:crypto';

const nothing = createHash('sha256').update('').digest('hex');

/**
 * Lists a bucket with a signed request (AWS Signature Version 4, path style). @returns `ready`, or the store's response.
 * Never rejects.
 */
export async function listBucket(options: {
  readonly endpoint: string;
  readonly region: string;
  readonly bucket: string;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
}): Promise<string> {
  const { region, accessKeyId } = options;
  const query = 'list-type=2&max-keys=1';
  const url = new URL(`/${options.bucket}?${query}`, options.endpoint);
  const time = new Date().toISOString().replace(/[-:]|\.\d+/g, '');
  const day = time.slice(0, 8);
  const scope = `${day}/${region}/s3/aws4_request`;
  const signedHeaders = 'host;x-amz-content-sha256;x-amz-date';
  const headers = [`host:${url.host}`, `x-amz-content-sha256:${nothing}`, `x-amz-date:${time}`, ''].join('\n');
  const request = ['GET', url.pathname, query, headers, signedHeaders, nothing].join('\n');
  const stringToSign = ['AWS4-HMAC-SHA256', time, scope, createHash('sha256').update(request).digest('hex')].join('\n');
  const key = [day, region, 's3', 'aws4_request'].reduce<Buffer>(
    (secret, text) => createHmac('sha256', secret).update(text).digest(),
    Buffer.from(`AWS4${options.secretAccessKey}`),
  );
  const signature = createHmac('sha256', key).update(stringToSign).digest('hex');
  try {
    const answer = await fetch(url, {
      headers: {
        'x-amz-content-sha256': nothing,
        'x-amz-date': time,
        authorization: `AWS4-HMAC-SHA256 Credential=${accessKeyId}/${scope}, SignedHeaders=${signedHeaders}, Signature=${signature}`,
      },
      signal: AbortSignal.timeout(5_000),
    });
    const text = await answer.text();
    return answer.ok && text.includes('ListBucketResult') ? 'ready' : `${answer.status} ${text.slice(0, 200)}`;
  } catch (error) {
    return error instanceof Error ? String(error.cause ?? error.message) : String(error);
  }
}
