export interface S3Credentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string | undefined;
}

/** A bucket and its connection options. */
export interface S3Options {
  /** Undefined if `endpointUrl` contains the bucket. */
  readonly bucket: string | undefined;
  /** Prefix of all keys; slashes at its ends are ignored. */
  readonly prefix: string;
  /** Default: `us-east-1`, which stores other than AWS ignore. */
  readonly region: string | undefined;
  /** Default: AWS. */
  readonly endpointUrl: string | undefined;
  /** Whether `endpointUrl` is the URL of the bucket; `pathOf` then omits the bucket. */
  readonly isBucketInEndpoint: boolean;
  /** Where URLs contain the bucket. `auto`: in the path with `endpointUrl`, in the host name for AWS. */
  readonly addressingStyle: 'virtual' | 'path' | 'auto';
  /** Default: the credential chain of the S3 client. */
  readonly credentials: S3Credentials | undefined;
  /** Allows endpoints on loopback and private addresses. */
  readonly allowPrivateEndpoints: boolean;
  /** Certificate authorities to trust, in PEM. */
  readonly authorities?: readonly string[] | undefined;
  readonly limits?: S3Limits | undefined;
}

/** Limits of calls; {@link defaultLimits} has the defaults. */
export interface S3Limits {
  /** Maximum number of attempts of a request. */
  readonly attempts?: number;
  readonly connectMs?: number;
  /** Idle timeout of a connection in use. */
  readonly silenceMs?: number;
  /** Timeout of a call with all its attempts; each 64 kB of its body adds a second. */
  readonly callMs?: number;
}

export const defaultLimits = { attempts: 3, connectMs: 5_000, silenceMs: 20_000, callMs: 60_000 } as const;
