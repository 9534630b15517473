import pins from './pins.json' with { type: 'json' };

/** Version of a download, and the SHA-256 of each of its files by name. */
export interface Pin {
  readonly version: string;
  readonly files: Readonly<Record<string, string>>;
}

export const kafkaPin: Pin = pins.kafka;
export const registryPin: Pin = pins.registry;
export const s3Pin: Pin = pins.s3;
export const redisPin: Pin & { readonly packages: readonly string[] } = pins.redis;
export const mavenDependencyPlugin: string = pins.mavenDependencyPlugin;
