import { createHmac, hkdfSync } from 'node:crypto';

/**
 * The signing secret of the webhooks of a deployment, unless the operator has set one: 32 bytes of HKDF-SHA256 (RFC 5869) of
 * the secret key, without salt, with the info `runlake webhooks <deployment id> v1`, in hex.
 */
export function webhookSecret(secretKey: string, deploymentId: string): string {
  const info = `runlake webhooks ${deploymentId} v1`;
  return Buffer.from(hkdfSync('sha256', secretKey, '', info, 32)).toString('hex');
}

/**
 * `X-Runlake-Signature`: `t=<seconds since 1970>,v1=<hex>`, where the hex is HMAC-SHA256 under the secret, as UTF-8, of the seconds,
 * a dot and the body as it was sent. Who verifies it compares in constant time and refuses a time that is minutes old.
 */
export function signWebhook(secret: string, body: string, atMs: number): string {
  const seconds = Math.floor(atMs / 1_000);
  return `t=${seconds},v1=${createHmac('sha256', secret).update(`${seconds}.${body}`).digest('hex')}`;
}
