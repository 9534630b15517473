import { readFileSync } from 'node:fs';
import { parse } from 'yaml';

/** The fields of a service that the tests use. */
export interface Service {
  readonly image: string;
  readonly hostname?: string;
  readonly profiles?: readonly string[];
  readonly build?: { readonly context: string; readonly dockerfile: string };
  readonly command?: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly restart?: string;
  readonly user?: string;
  readonly read_only?: boolean;
  readonly tmpfs?: readonly string[];
  readonly cap_drop?: readonly string[];
  readonly cap_add?: readonly string[];
  readonly security_opt?: readonly string[];
  readonly mem_limit?: string;
  readonly stop_grace_period?: string;
  readonly ports?: readonly string[];
  readonly volumes?: readonly string[];
  readonly healthcheck?: { readonly test: readonly string[] } & Readonly<Record<string, unknown>>;
  readonly depends_on?: Readonly<Record<string, { readonly condition: string }>>;
}

export interface Compose {
  readonly name: string;
  readonly services: Readonly<Record<string, Service>>;
  readonly volumes: Readonly<Record<string, unknown>>;
}

export const root = new URL('../../../', import.meta.url);
export const readText = (path: string) => readFileSync(new URL(path, root), 'utf8');

/** Text of the compose file, with YAML anchors and merges resolved. */
const composeText = readText('docker-compose.yml');
export const composeData: unknown = parse(composeText, { merge: true });

/**
 * Returns the compose file with its variables substituted as `docker compose` does: `${X:-default}`, `${X:?message}`,
 * `$$`.
 *
 * @throws the message if a required variable is absent or empty.
 */
export function buildCompose(variables: Readonly<Record<string, string>>): Compose {
  return JSON.parse(JSON.stringify(composeData), (_key, value) =>
    typeof value === 'string' ? substituteVariables(value, variables) : value,
  );
}

const variable = /\$\$|\$\{(\w+)(?::([-?])((?:\$\{[^}]*\}|[^}])*))?\}/g;

/** Returns the text with variables substituted as in `docker-compose.yml`. */
export function substituteVariables(text: string, variables: Readonly<Record<string, string>>): string {
  return text.replace(variable, (whole, name, sign, argument) => {
    if (whole === '$$') return '$';
    const value = variables[name] ?? '';
    if (value === '' && sign === '?') throw new Error(`${name}: ${argument}`);
    return value === '' && sign === '-' ? substituteVariables(argument, variables) : value;
  });
}

/** Names of the variables in the file, and whether they are required. */
export const composeVariables: ReadonlyMap<string, 'required' | 'optional'> = new Map(
  [...composeText.matchAll(variable)].flatMap(([, name, sign]) =>
    name === undefined ? [] : [[name, sign === '?' ? ('required' as const) : ('optional' as const)] as const],
  ),
);

/** Parses a file of variables such as `.env`. */
export function readVariables(text: string): Record<string, string> {
  return Object.fromEntries(
    text.split('\n').flatMap((line) => {
      const [, name, value] = /^(\w+)=(.*)$/.exec(line) ?? [];
      return name === undefined ? [] : [[name, value ?? '']];
    }),
  );
}
