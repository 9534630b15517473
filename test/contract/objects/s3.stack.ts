import { describe } from 'vitest';
import { s3OfStack } from '../../infra/objects/s3/s3-of-stack.ts';
import { objectStoreContract } from './object-store-contract.ts';

const s3 = s3OfStack();

describe.runIf(s3)('on a real store', () => {
  objectStoreContract('S3', async () => {
    if (s3 === undefined) throw new Error('not up');
    return { open: (prefix) => s3.open({ prefix }), names: () => s3.names(), close: () => s3.close() };
  });
});
