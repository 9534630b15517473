/** Secrets of deployments: environment variables of graph code, stored encrypted, and never returned. */
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sealer } from '../../infra/sealing/sealer.ts';

export interface DeploymentSecret {
  readonly name: string;
  readonly value: string;
}

export type SecretValues = Readonly<Record<string, string>>;

/** Identifies the row of a sealed text, which cannot be opened for another row. */
type SecretOwner = `deployment ${string}` | `revision ${string}`;

/** Secret with the token for a private repository. Graph code does not need it, but gets it like the others. */
export const gitTokenName = 'GIT_TOKEN';

const namePattern = /^[A-Za-z_][A-Za-z0-9_]*$/;
export const maxSecrets = 200;
/** Linux limits an environment variable to 128 KiB, and a host passes all secrets to a replica in one. */
const maxSecretBytes = 100_000;

/**
 * Checks names and sizes, and returns the values by name. A secret with an empty value keeps its value in `stored`, because
 * clients that send a deployment back have only its names.
 *
 * @throws DEPLOYMENT_INVALID
 */
export function mergeSecrets(secrets: readonly DeploymentSecret[], stored: SecretValues): SecretValues {
  const values: Record<string, string> = Object.create(null) as Record<string, string>;
  for (const [index, { name, value }] of secrets.entries()) {
    const field = `secrets[${index}]`;
    if (!namePattern.test(name)) {
      const reason = 'its name must be the name of an environment variable: letters, digits and _, not a digit first';
      throw runlakeError('DEPLOYMENT_INVALID', { field, reason });
    }
    if (Object.hasOwn(values, name)) {
      throw runlakeError('DEPLOYMENT_INVALID', { field, reason: `the name ${name} is repeated` });
    }
    const kept = value === '' && Object.hasOwn(stored, name) ? stored[name] : value;
    if (kept === undefined || kept === '') {
      throw runlakeError('DEPLOYMENT_INVALID', { field, reason: `the value of ${name} is empty` });
    }
    values[name] = kept;
  }
  const bytes = Buffer.byteLength(JSON.stringify(values));
  if (bytes > maxSecretBytes) {
    const reason = `together they have ${bytes} bytes as JSON; environment variables can have at most ${maxSecretBytes}`;
    throw runlakeError('DEPLOYMENT_INVALID', { field: 'secrets', reason });
  }
  return { ...values };
}

/** Seals values for a row; returns null if there are none. */
export function sealSecrets(sealer: Sealer, owner: SecretOwner, values: SecretValues): string | null {
  return Object.keys(values).length === 0 ? null : sealer.seal(JSON.stringify(values), owner);
}

/** @throws SEAL_KEY_UNKNOWN, SEAL_BROKEN */
export function openSecrets(sealer: Sealer, owner: SecretOwner, sealed: string | null): SecretValues {
  return sealed === null ? {} : (JSON.parse(sealer.open(sealed, owner).text) as SecretValues);
}

/** Opens the secrets of a revision. @throws SEAL_KEY_UNKNOWN, SEAL_BROKEN */
export function openRevisionSecrets(
  sealer: Sealer,
  { revisionId, sealedSecrets }: { readonly revisionId: string; readonly sealedSecrets: string | null },
): SecretValues {
  return openSecrets(sealer, `revision ${revisionId}`, sealedSecrets);
}

/** Columns with sealed secrets, for {@link resealColumns}. */
export const sealedDeploymentColumns = [
  {
    table: 'deployments',
    column: 'sealed_secrets',
    keyColumns: ['id'],
    identify: (id: string): SecretOwner => `deployment ${id}`,
  },
  {
    table: 'deployment_revisions',
    column: 'sealed_secrets',
    keyColumns: ['id'],
    identify: (id: string): SecretOwner => `revision ${id}`,
  },
];
