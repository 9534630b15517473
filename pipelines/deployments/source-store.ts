import { mkdirSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { OpenedOnce } from '../../infra/cache/opened-once.ts';
import type { Config } from '../../infra/config/settings.ts';
import type { ObjectStore } from '../../infra/objects/object-store.ts';
import { openLocalStore } from '../../infra/objects/open-local-store.ts';
import { readTrustedAuthorities } from '../../infra/tls/trusted-authorities.ts';

/** The store of uploaded sources. It is opened when it is first used, because most installations have no deployments. */
export interface SourceStore {
  open(): Promise<ObjectStore>;
  close(): Promise<void>;
}

export function createSourceStore(
  config: Pick<Config, 'dataDir' | 'deploymentsSourceStore' | 'tlsCaFile'>,
): SourceStore {
  const store = new OpenedOnce(() => openSourceStore(config));
  return {
    open: () => store.get(),
    close: async () => (await store.peek())?.close(),
  };
}

/** Opens the configured bucket, otherwise a private folder in the data folder. */
async function openSourceStore(
  config: Pick<Config, 'dataDir' | 'deploymentsSourceStore' | 'tlsCaFile'>,
): Promise<ObjectStore> {
  if (config.deploymentsSourceStore === undefined) {
    const root = join(resolve(config.dataDir), 'deployments', 'sources');
    mkdirSync(dirname(root), { recursive: true, mode: 0o711 });
    mkdirSync(root, { recursive: true, mode: 0o700 });
    return openLocalStore({ root, prefix: '' });
  }
  const { hostname, pathname, username, password, searchParams } = new URL(config.deploymentsSourceStore);
  // The client is large, and most processes do not need it.
  const { openS3Store } = await import('../../infra/objects/s3/open-s3-store.ts');
  return openS3Store({
    bucket: hostname,
    prefix: decodeURIComponent(pathname),
    region: searchParams.get('region') ?? undefined,
    endpointUrl: searchParams.get('endpoint') ?? undefined,
    isBucketInEndpoint: false,
    addressingStyle: 'auto',
    credentials:
      username === ''
        ? undefined
        : {
            accessKeyId: decodeURIComponent(username),
            secretAccessKey: decodeURIComponent(password),
            sessionToken: undefined,
          },
    // The operator sets the address, so it may be private.
    allowPrivateEndpoints: true,
    authorities: readTrustedAuthorities(config),
  });
}
