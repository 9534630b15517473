import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openLocalStore } from '../../../infra/objects/open-local-store.ts';
import { objectStoreContract } from './object-store-contract.ts';

objectStoreContract('a local folder', async () => {
  const root = mkdtempSync(join(tmpdir(), 'runlake-local-'));
  return {
    open: (prefix) => openLocalStore({ root, prefix }),
    names: async () =>
      readdirSync(root, { recursive: true, withFileTypes: true })
        .filter((entry) => entry.isFile())
        .map((entry) => join(entry.parentPath, entry.name)),
    close: async () => rmSync(root, { recursive: true, force: true }),
  };
});
