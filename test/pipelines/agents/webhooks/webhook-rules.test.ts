import { describe, expect, it } from 'vitest';
import {
  buildWebhookRules,
  type WebhookRuleOptions,
  type WebhookSettings,
} from '../../../../pipelines/agents/webhooks/webhook-rules.ts';

const refusal = (webhook: string, options: Partial<WebhookRuleOptions> = {}) => {
  try {
    buildWebhookRules({ allowPrivate: false, ...options }).check(webhook);
    return undefined;
  } catch (error) {
    expect(error).toMatchObject({ code: 'WEBHOOK_INVALID', status: 422 });
    return (error as Error).message;
  }
};
const url = (limits: NonNullable<WebhookSettings['url']>) => ({ settings: { url: limits } as const });

describe('webhook rules', () => {
  it.each<[webhook: string, options?: Partial<WebhookRuleOptions>]>([
    ['https://hooks.example/a?b=c'],
    ['http://93.184.215.14:8080/'],
    ['/hooks/done?x=1'],
    ['http://127.0.0.1:3000/', { allowPrivate: true }],
    ['http://localhost:3000/', { allowPrivate: true }],
    ['https://a.hooks.example/', url({ allowed_domains: ['*.hooks.example'] })],
    ['https://hooks.example/', url({ allowed_domains: ['other.example', 'HOOKS.example'], allowed_ports: [443] })],
    ['/x', url({ allowed_domains: ['hooks.example'], require_https: true })],
  ])('accept %s', (webhook, options?) => {
    expect(refusal(webhook, options)).toBeUndefined();
  });

  it.each<[webhook: string, reason: string, options?: Partial<WebhookRuleOptions>]>([
    ['hooks.example/a', 'neither'],
    ['ftp://hooks.example/', 'neither'],
    ['file:///etc/passwd', 'neither'],
    ['//hooks.example/a', 'not a path of this server'],
    ['/\\hooks.example/a', 'not a path of this server'],
    ['//[', 'not a path of this server'],
    ['//a:99999', 'not a path of this server'],
    ['/\\[', 'not a path of this server'],
    ['http://127.0.0.1/', 'loopback'],
    ['http://localhost:3000/', 'loopback'],
    ['http://a.localhost./', 'loopback'],
    ['http://[::ffff:10.0.0.1]/', 'private'],
    ['http://2130706433/', 'loopback'],
    ['http://169.254.169.254/latest', 'credentials', { allowPrivate: true }],
    ['https://hooks.example/\0', 'characters'],
    ['https://hooks.example/a b', 'characters'],
    ['https://hooks.example/', 'disables webhooks', { disabled: true }],
    ['http://hooks.example/', 'https', url({ require_https: true })],
    ['https://hooks.example:8443/', '8443', url({ allowed_ports: [443] })],
    ['https://hooks.example/', 'the host hooks.example', url({ allowed_domains: ['*.hooks.example', 'b.example'] })],
    ['https://evilhooks.example/', 'not allow the host', url({ allowed_domains: ['*.hooks.example'] })],
    ['https://hooks.example/long', '10 characters', url({ max_url_length: 10 })],
    ['/x', 'disables paths', url({ disable_loopback: true })],
  ])('refuse %s: %s', (webhook, reason, options?) => {
    expect(refusal(webhook, options)).toContain(reason);
  });

  it('leave credentials out of the error message', () => {
    expect(refusal('http://user:secret@127.0.0.1/')).not.toContain('secret');
  });

  it('fill headers only with variables that start with LG_WEBHOOK_', () => {
    const headers = {
      Authorization: `Bearer $\{{ env.LG_WEBHOOK_TOKEN }}`,
      'X-Other': `[$\{{ env.DATABASE_URL }}]`,
      'x-plain': 'a',
    };
    const environment = { LG_WEBHOOK_TOKEN: 't', DATABASE_URL: 'secret' };
    expect(buildWebhookRules({ settings: { headers }, environment, allowPrivate: false }).headers).toEqual({
      authorization: 'Bearer t',
      'x-other': '[]',
      'x-plain': 'a',
    });
  });
});
