import { ListMultipartUploadsCommand, ListObjectsV2Command, S3Client } from '@aws-sdk/client-s3';
import type { ObjectStore } from '../../../../infra/objects/object-store.ts';
import { openS3Store } from '../../../../infra/objects/s3/open-s3-store.ts';
import type { S3Options } from '../../../../infra/objects/s3/s3-connection.ts';
import { stackPart } from '../../../engines/stack.ts';

/** Identities; `test/stack/parts/s3.ts` lists their permissions. */
export type S3Identity = 'admin' | 'writer' | 'reader' | 'dropper' | 'guest';

/** The S3 store of the native stack, for tests. */
export interface StackS3 {
  readonly endpoint: string;
  readonly bucket: string;
  /** Prefix of buckets that tests create; only the guest has permissions on them. */
  readonly passingBucket: string;
  /** A direct client with all permissions. */
  readonly admin: S3Client;
  credentials(identity: S3Identity): NonNullable<S3Options['credentials']>;
  /** Opens an `ObjectStore`. By default it uses the bucket of the stack and the writer's credentials. */
  open(options?: Partial<S3Options>): ObjectStore;
  /** Returns the keys of objects and of incomplete multipart uploads. */
  names(bucket?: string): Promise<string[]>;
  objects(bucket?: string): Promise<string[]>;
  uploads(bucket?: string): Promise<string[]>;
  close(): Promise<void>;
}

/**
 * Returns the S3 store of the native stack. Returns undefined, with the reason printed, if the store is not running.
 */
export function findStackS3(): StackS3 | undefined {
  const part = stackPart('s3');
  if (part === undefined) return undefined;
  const { endpoint = '', bucket = '', passingBucket = '', region = '' } = part;
  const credentials = (identity: S3Identity) => ({
    accessKeyId: part[`${identity}AccessKeyId`] ?? '',
    secretAccessKey: part[`${identity}SecretAccessKey`] ?? '',
  });
  const admin = new S3Client({ endpoint, region, forcePathStyle: true, credentials: credentials('admin') });
  async function objects(of = bucket): Promise<string[]> {
    const found: string[] = [];
    for (let token: string | undefined; ; ) {
      const page = await admin.send(new ListObjectsV2Command({ Bucket: of, ContinuationToken: token }));
      found.push(...(page.Contents ?? []).map(({ Key }) => Key ?? ''));
      token = page.NextContinuationToken;
      if (token === undefined) return found;
    }
  }
  async function uploads(of = bucket): Promise<string[]> {
    const { Uploads = [] } = await admin.send(new ListMultipartUploadsCommand({ Bucket: of }));
    return Uploads.map(({ Key }) => Key ?? '');
  }
  return {
    endpoint,
    bucket,
    passingBucket,
    admin,
    credentials,
    open: (options = {}) =>
      openS3Store({
        bucket,
        prefix: '',
        region,
        endpointUrl: endpoint,
        isBucketInEndpoint: false,
        addressingStyle: 'auto',
        credentials: credentials('writer'),
        allowPrivateEndpoints: true,
        ...options,
      }),
    objects,
    uploads,
    names: async (of) => [...(await objects(of)), ...(await uploads(of))],
    close: async () => admin.destroy(),
  };
}
