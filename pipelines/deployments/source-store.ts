import { mkdirSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import type { Config } from '../../infra/config/settings.ts';
import type { ObjectStore } from '../../infra/objects/object-store.ts';
import { openLocalStore } from '../../infra/objects/open-local-store.ts';
import { openS3Store } from '../../infra/objects/s3/open-s3-store.ts';
import { readTrustedAuthorities } from '../../infra/tls/trusted-authorities.ts';

/** The store of uploaded sources. It is opened when it is first used, because most installations have no deployments. */
export interface SourceStore {
  open(): ObjectStore;
  close(): Promise<void>;
}

export function createSourceStore(
  config: Pick<Config, 'dataDir' | 'deploymentsSourceStore' | 'tlsCaFile'>,
): SourceStore {
  let opened: ObjectStore | undefined;
  return {
    open: () => (opened ??= openSourceStore(config)),
    close: async () => opened?.close(),
  };
}

/** Opens the configured bucket, otherwise a private folder in the data folder. */
function openSourceStore(config: Pick<Config, 'dataDir' | 'deploymentsSourceStore' | 'tlsCaFile'>): ObjectStore {
  if (config.deploymentsSourceStore === undefined) {
    const root = join(resolve(config.dataDir), 'deployments', 'sources');
    mkdirSync(dirname(root), { recursive: true, mode: 0o711 });
    mkdirSync(root, { recursive: true, mode: 0o700 });
    return openLocalStore({ root, prefix: '' });
  }
  const { hostname, pathname, username, password, searchParams } = new URL(config.deploymentsSourceStore);
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
