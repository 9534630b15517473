export interface S3Credentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string | undefined;
}

/** A bucket, and how it may be reached. */
export interface S3Options {
  /** Undefined where `endpointUrl` holds it. */
  readonly bucket: string | undefined;
  /** Goes before each key; slashes at its ends do not count. */
  readonly prefix: string;
  /** Undefined: `us-east-1`, which stores other than AWS do not look at. */
  readonly region: string | undefined;
  /** Undefined: AWS. */
  readonly endpointUrl: string | undefined;
  /** `endpointUrl` is the address of the bucket itself, and `pathOf` leaves the bucket out. */
  readonly isBucketInEndpoint: boolean;
  /** `auto`: in the path at an endpoint, in the host name at AWS. */
  readonly addressingStyle: 'virtual' | 'path' | 'auto';
  /** Undefined: the default chain of the S3 client. */
  readonly credentials: S3Credentials | undefined;
  /** Lets endpoints on loopback and private addresses pass. */
  readonly allowPrivateEndpoints: boolean;
  /** Certificate authorities to trust, in PEM. */
  readonly authorities?: readonly string[] | undefined;
  readonly limits?: S3Limits | undefined;
}

/** Undefined fields are as {@link defaultLimits} says. */
export interface S3Limits {
  /** How often a request is sent before its failure counts. */
  readonly attempts?: number;
  readonly connectMs?: number;
  /** Longest silence on a connection in use. */
  readonly silenceMs?: number;
  /** Longest time of a call, all its attempts included; each 64 KiB of its body adds a second. */
  readonly callMs?: number;
}

export const defaultLimits = { attempts: 3, connectMs: 5_000, silenceMs: 20_000, callMs: 60_000 } as const;
