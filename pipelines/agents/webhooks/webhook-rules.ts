import { isIP } from 'node:net';
import { fault } from '../../../infra/errors/runlake-error.ts';
import { rangeOf } from '../../../infra/network/address-range.ts';

/** Section `webhooks` of a langgraph.json, with its names. Source: reference `agent-server.md` 2.3. */
export interface WebhookSettings {
  /** Sent with each; `${{ env.NAME }}` stands for a variable of the graphs' environment. */
  readonly headers?: Readonly<Record<string, string>>;
  /** How names of variables begin that headers may hold. Default: LG_WEBHOOK_. */
  readonly env_prefix?: string;
  readonly url?: {
    /** `host.example`, or `*.example` for all below it. */
    readonly allowed_domains?: readonly string[];
    readonly allowed_ports?: readonly number[];
    readonly require_https?: boolean;
    readonly max_url_length?: number;
    /** Refuses paths of this server. */
    readonly disable_loopback?: boolean;
  };
}

export interface WebhookRules {
  /** @throws WEBHOOK_INVALID for what could not be called in any case. What a name leads to is checked when it is called. */
  check(webhook: string): void;
  /** By lower-case name. */
  readonly headers: Readonly<Record<string, string>>;
}

export interface WebhookRuleOptions {
  readonly settings?: WebhookSettings;
  /** `http.disable_webhooks`. */
  readonly disabled?: boolean;
  /** What headers take variables from. */
  readonly environment?: Readonly<Record<string, string | undefined>>;
  /** RUNLAKE_ALLOW_PRIVATE_ENDPOINTS. */
  readonly allowPrivate: boolean;
}

const longestUrl = 65_536;

export function webhookRules(options: WebhookRuleOptions): WebhookRules {
  const { settings = {}, disabled = false, environment = {} } = options;
  const prefix = settings.env_prefix ?? 'LG_WEBHOOK_';
  const fill = (value: string) =>
    value.replace(/\$\{\{\s*env\.(\w+)\s*\}\}/g, (_, name: string) =>
      name.startsWith(prefix) ? (environment[name] ?? '') : '',
    );
  return {
    headers: Object.fromEntries(
      Object.entries(settings.headers ?? {}).map(([name, value]) => [name.toLowerCase(), fill(value)]),
    ),
    check(webhook) {
      const reason = disabled ? 'webhooks are turned off by the langgraph.json' : flawOf(webhook, options);
      if (reason !== undefined) throw fault('WEBHOOK_INVALID', { url: shown(webhook), reason });
    },
  };
}

/** What is wrong with it; undefined: nothing that can be seen from here. */
function flawOf(webhook: string, { settings = {}, allowPrivate }: WebhookRuleOptions): string | undefined {
  const limits = settings.url ?? {};
  const maxLength = limits.max_url_length ?? longestUrl;
  if (webhook.length > maxLength) return `it is longer than ${maxLength} characters`;
  if (/[\s\p{Control}\p{Surrogate}]/u.test(webhook)) return 'it holds characters that no address has';
  if (webhook.startsWith('/')) {
    if (limits.disable_loopback) return 'paths of this server are turned off by the langgraph.json';
    return isOwnPath(webhook) ? undefined : 'it is no path of this server';
  }
  const url = URL.canParse(webhook) ? new URL(webhook) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol)) return 'it is neither an http or https address nor a path';
  if (limits.require_https && url.protocol !== 'https:') return 'only https is allowed by the langgraph.json';
  const port = Number(url.port || (url.protocol === 'https:' ? 443 : 80));
  if (limits.allowed_ports !== undefined && !limits.allowed_ports.includes(port))
    return `port ${port} is not one that the langgraph.json allows`;
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  if (limits.allowed_domains?.some((domain) => isWithin(host, domain)) === false)
    return `${host} is not a host that the langgraph.json allows`;
  if (/(?:^|\.)localhost\.?$/.test(host)) return allowPrivate ? undefined : `${host} is a loopback address`;
  const range = isIP(host) === 0 ? undefined : rangeOf(host);
  return range === undefined || (allowPrivate && range.isAllowable) ? undefined : `${host} is ${range.about}`;
}

/** Of this server whatever its address: `//host` and the like would lead elsewhere. */
function isOwnPath(path: string): boolean {
  return new URL(path, 'http://own.invalid').origin === 'http://own.invalid';
}

function isWithin(host: string, domain: string): boolean {
  const name = domain.toLowerCase();
  return name.startsWith('*.') ? host.endsWith(name.slice(1)) : host === name;
}

/** Without credentials, and not at any length. */
function shown(webhook: string): string {
  return webhook.replace(/\/\/[^/?#]*@/, '//').slice(0, 200);
}
