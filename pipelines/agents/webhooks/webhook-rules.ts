import { isIP } from 'node:net';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { classifyAddress } from '../../../infra/network/address-range.ts';
import type { Sql } from '../../../infra/postgres/database.ts';
import { formatKwargs } from '../runs/read-run.ts';
import type { RunKwargs } from '../runs/run.ts';

/** The section `webhooks` of a langgraph.json. Source: configuration file of the LangGraph CLI. */
export interface WebhookSettings {
  /** Headers of each webhook request. `${{ env.NAME }}` inserts a variable of the graphs' environment. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Required prefix of the variables that headers can insert. Default: LG_WEBHOOK_. */
  readonly env_prefix?: string;
  readonly url?: {
    /** Allowed hosts: `host.example`, or `*.example` for all subdomains. */
    readonly allowed_domains?: readonly string[];
    readonly allowed_ports?: readonly number[];
    readonly require_https?: boolean;
    readonly max_url_length?: number;
    /** Whether paths of this server are refused. */
    readonly disable_loopback?: boolean;
  };
}

export interface WebhookRules {
  /**
   * Checks a webhook without resolving its host name; the address is checked when the webhook is sent.
   *
   * @throws WEBHOOK_INVALID
   */
  check(webhook: string): void;
  /** Headers of each webhook request, by lower-case name. */
  readonly headers: Readonly<Record<string, string>>;
}

export interface WebhookRuleOptions {
  readonly settings?: WebhookSettings;
  /** Value of `http.disable_webhooks` in the langgraph.json. */
  readonly disabled?: boolean;
  /** Environment variables that header templates can reference. */
  readonly environment?: Readonly<Record<string, string | undefined>>;
  /** Value of the setting RUNLAKE_ALLOW_PRIVATE_ENDPOINTS. */
  readonly allowPrivate: boolean;
}

const defaultMaxUrlLength = 65_536;

/** Builds the webhook rules of a deployment from its langgraph.json and the settings. */
export function buildWebhookRules(options: WebhookRuleOptions): WebhookRules {
  const { settings = {}, disabled = false, environment = {} } = options;
  const prefix = settings.env_prefix ?? 'LG_WEBHOOK_';
  const expandVariables = (value: string) =>
    value.replace(/\$\{\{\s*env\.(\w+)\s*\}\}/g, (_, name: string) =>
      name.startsWith(prefix) ? (environment[name] ?? '') : '',
    );
  return {
    headers: Object.fromEntries(
      Object.entries(settings.headers ?? {}).map(([name, value]) => [name.toLowerCase(), expandVariables(value)]),
    ),
    check(webhook) {
      const reason = disabled ? 'the langgraph.json disables webhooks' : findFlaw(webhook, options);
      if (reason !== undefined) throw runlakeError('WEBHOOK_INVALID', { url: redactUrl(webhook), reason });
    },
  };
}

/**
 * Returns the reason to refuse a webhook; undefined if the webhook passes all checks that do not need name resolution.
 */
function findFlaw(webhook: string, { settings = {}, allowPrivate }: WebhookRuleOptions): string | undefined {
  const limits = settings.url ?? {};
  const maxLength = limits.max_url_length ?? defaultMaxUrlLength;
  if (normalizeUrl(webhook).length > maxLength) return `it is longer than ${maxLength} characters`;
  if (/[\s\p{Control}\p{Surrogate}]/u.test(webhook)) return 'it contains characters that a URL cannot have';
  if (webhook.startsWith('/')) {
    if (limits.disable_loopback) return 'the langgraph.json disables paths of this server';
    return isOwnPath(webhook) ? undefined : 'it is not a path of this server';
  }
  const url = URL.canParse(webhook) ? new URL(webhook) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol)) return 'it is neither an http or https URL nor a path';
  if (limits.require_https && url.protocol !== 'https:') return 'the langgraph.json allows only https';
  const port = Number(url.port || (url.protocol === 'https:' ? 443 : 80));
  if (limits.allowed_ports !== undefined && !limits.allowed_ports.includes(port))
    return `the langgraph.json does not allow port ${port}`;
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  if (limits.allowed_domains?.some((domain) => isInDomain(host, domain)) === false)
    return `the langgraph.json does not allow the host ${host}`;
  if (/(?:^|\.)localhost\.?$/.test(host)) return allowPrivate ? undefined : `${host} is a loopback address`;
  const range = isIP(host) === 0 ? undefined : classifyAddress(host);
  return range === undefined || (allowPrivate && range.isAllowable) ? undefined : `${host} is ${range.about}`;
}

/** Whether a URL path refers to this server. A path such as `//host` would refer to another host. */
function isOwnPath(path: string): boolean {
  const base = 'http://own.invalid';
  return URL.canParse(path, base) && new URL(path, base).origin === base;
}

function isInDomain(host: string, domain: string): boolean {
  const name = domain.toLowerCase();
  return name.startsWith('*.') ? host.endsWith(name.slice(1)) : host === name;
}

/** Normalises a URL as it is sent, so that all spellings of a host are equal. A path of this server stays as it is. */
function normalizeUrl(webhook: string): string {
  return URL.canParse(webhook) ? new URL(webhook).href : webhook;
}

/** Removes the credentials from a URL and truncates it, for use in error messages. */
function redactUrl(webhook: string): string {
  return webhook.replace(/\/\/[^/?#]*@/, '//').slice(0, 200);
}

interface EndedRunWithWebhook {
  readonly deploymentId: string;
  readonly runId: string;
  /** If undefined or without a webhook, nothing is recorded. */
  readonly kwargs: RunKwargs | undefined | null;
  /** Final values of the run as JSON text. */
  readonly values?: string | undefined;
  /** Error of the run, if it failed. */
  readonly error?: string | undefined;
}

/**
 * Records the webhook that reports the end of a run. Call it in the transaction that ends the run, after the row of the
 * run is updated and before the row may be deleted, so that a crash cannot lose the webhook. Further calls for the same
 * run change nothing.
 */
export async function recordWebhook(sql: Sql, ended: EndedRunWithWebhook): Promise<void> {
  const { kwargs } = ended;
  if (kwargs?.webhook === undefined) return;
  await sql.execute(
    `INSERT INTO agents.webhooks (deployment_id, run_id, url, body)
     SELECT deployment_id, run_id, $3, json_build_object(
       'run_id', run_id, 'thread_id', thread_id, 'assistant_id', assistant_id, 'created_at', created_at,
       'updated_at', updated_at, 'status', status, 'metadata', metadata, 'kwargs', $6::json,
       'multitask_strategy', multitask_strategy, 'run_started_at', started_at, 'run_ended_at', coalesce(ended_at, now()),
       'values', $4::json, 'error', $5::text)
     FROM agents.runs WHERE deployment_id = $1 AND run_id = $2
     ON CONFLICT DO NOTHING`,
    [
      ended.deploymentId,
      ended.runId,
      normalizeUrl(kwargs.webhook.replaceAll('\0', '')),
      ended.values ?? null,
      removeNul(ended.error) ?? null,
      JSON.stringify(formatKwargs(kwargs)),
    ],
  );
  await sql.execute("SELECT pg_notify('agent_webhooks', $1)", [ended.deploymentId]);
}

/** Removes NUL characters, which Postgres cannot store in text. */
function removeNul(text: string | undefined): string | undefined {
  return text?.replaceAll('\0', '');
}
