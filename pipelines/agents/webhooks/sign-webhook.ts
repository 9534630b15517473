import { createHmac, hkdfSync } from 'node:crypto';

/**
 * Derives the default signing secret of a deployment's webhooks, for operators who set none: 32 bytes of HKDF-SHA256
 * (RFC 5869) of the secret key, without salt, with the info `runlake webhooks <deployment id> v1`, in hex.
 */
export function webhookSecret(secretKey: string, deploymentId: string): string {
  const info = `runlake webhooks ${deploymentId} v1`;
  return Buffer.from(hkdfSync('sha256', secretKey, '', info, 32)).toString('hex');
}

/**
 * Computes the header `X-Runlake-Signature`: `t=<Unix seconds>,v1=<hex>`. The hex is the HMAC-SHA256 of the seconds, a
 * dot and the body as sent; the key is the secret as UTF-8. Receivers should compare in constant time and refuse
 * signatures that are minutes old.
 */
export function signWebhook(secret: string, body: string, atMs: number): string {
  const seconds = Math.floor(atMs / 1_000);
  return `t=${seconds},v1=${createHmac('sha256', secret).update(`${seconds}.${body}`).digest('hex')}`;
}
