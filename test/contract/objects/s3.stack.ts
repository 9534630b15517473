import { describe } from 'vitest';
import { findStackS3 } from '../../infra/objects/s3/s3-of-stack.ts';
import { objectStoreContract } from './object-store-contract.ts';

const s3 = findStackS3();

describe.runIf(s3)('on a real store', () => {
  objectStoreContract('S3', async () => {
    if (s3 === undefined) throw new Error('not up');
    return { open: (prefix) => s3.open({ prefix }), names: () => s3.names(), close: () => s3.close() };
  });
});
