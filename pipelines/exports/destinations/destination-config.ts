/** How a destination is stored and answered; `null` is what was not given. */
export interface DestinationConfig {
  readonly bucket_name: string | null;
  readonly prefix: string;
  readonly region: string | null;
  readonly endpoint_url: string | null;
  readonly include_bucket_in_prefix: boolean;
  readonly config_kwargs_s3: { readonly addressing_style?: 'virtual' | 'path' | 'auto' | null | undefined } | null;
}

export type DestinationType = 's3' | 'local';

/** As they travel and are sealed. */
export interface DestinationCredentials {
  readonly access_key_id: string;
  readonly secret_access_key: string;
  readonly session_token?: string | null | undefined;
}
