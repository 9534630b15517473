/** Validation of what a deployment runs, in requests and again on the host that builds it. */
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { requireStorableJson } from '../../infra/json/json-value.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import type { Caller } from '../tenants/caller.ts';
import { isOperator } from '../tenants/operator.ts';
import { checkPod, findOperatorField } from './check-pod.ts';
import type { DeploymentSource, RunDescription, SourceConfig, SourceDescription } from './deployment.ts';

const createError = (field: string, reason: string) => runlakeError('DEPLOYMENT_INVALID', { field, reason });

/** Whether the source is built on a host. Other sources are images. */
export function isBuildable(source: DeploymentSource): boolean {
  return source === 'github' || source === 'internal_source';
}

/**
 * Checks the fields of a deployment against each other.
 *
 * @param driver the driver of this installation.
 * @throws DEPLOYMENT_INVALID, INVALID_REQUEST
 */
export function checkDeployment(
  { source, sourceConfig, sourceRevisionConfig, secretReferences }: RunDescription,
  driver: 'process' | 'docker' | 'kubernetes',
): void {
  const { repo_ref, langgraph_config_path, image_uri, source_tarball_path } = sourceRevisionConfig;
  if (isBuildable(source) !== (driver === 'process')) {
    const needed = isBuildable(source) ? 'process' : 'docker or kubernetes';
    throw createError('source', `${source} needs RUNLAKE_DEPLOYMENTS_DRIVER ${needed}, but it is ${driver}`);
  }
  if (source === 'github') {
    checkRepositoryUrl(sourceConfig.repo_url);
    if (repo_ref == null) throw createError('source_revision_config.repo_ref', 'it is required for this source');
    checkReference(repo_ref);
  }
  if (isBuildable(source)) {
    if (langgraph_config_path != null) checkRelativePath(langgraph_config_path);
    if (image_uri != null) throw createError('source_revision_config.image_uri', 'it must be null for this source');
  } else {
    if (langgraph_config_path != null)
      throw createError('source_revision_config.langgraph_config_path', 'it must be null for this source');
    if (source_tarball_path != null)
      throw createError('source_revision_config.source_tarball_path', 'it must be null for this source');
    if (image_uri != null && !/^[a-z0-9][\w.:/@-]{0,511}$/i.test(image_uri))
      throw createError('source_revision_config.image_uri', 'it is not the name of an image');
  }
  if (sourceConfig.custom_url != null) checkCustomUrl(sourceConfig.custom_url);
  // Hosts read the settings of all deployments with operators of `json`, which throw if one contains such a character.
  requireStorableJson(sourceConfig, ['body', 'source_config']);
  if (sourceConfig.build_on_push)
    throw createError('source_config.build_on_push', 'Runlake does not watch repositories; create a revision instead');
  const { min_scale: min, max_scale: max } = sourceConfig.resource_spec ?? {};
  if (min != null && max != null && min > max)
    throw createError('source_config.resource_spec.min_scale', `${min} is larger than max_scale (${max})`);
  checkPod({ resources: sourceConfig.resource_spec ?? {}, secretReferences });
  if (secretReferences.length > 0 && driver !== 'kubernetes')
    throw createError('secret_references', `they need RUNLAKE_DEPLOYMENTS_DRIVER kubernetes; use secrets instead`);
}

/**
 * Checks that only the operator of the installation refers to other objects of a cluster, which belong to no workspace.
 *
 * @throws DEPLOYMENT_INVALID
 */
export async function requireOperatorForObjects(
  sql: Sql,
  caller: Pick<Caller, 'organizationId'>,
  { sourceConfig, secretReferences }: Pick<RunDescription, 'sourceConfig' | 'secretReferences'>,
): Promise<void> {
  const field = findOperatorField({ resources: sourceConfig.resource_spec ?? {}, secretReferences });
  if (field === undefined || (await isOperator(sql, caller))) return;
  const reason =
    'only the organisation of the operator may set it, because it concerns objects that belong to no workspace';
  throw createError(field, reason);
}

/** Checks a URL that clients show as a link. @throws DEPLOYMENT_INVALID */
function checkCustomUrl(text: string): void {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol) || url.username !== '' || url.password !== '')
    throw createError('source_config.custom_url', 'it is not an http or https URL without credentials');
}

/**
 * Returns a source config as it is stored. Responses contain the address below this installation as `custom_url`, and
 * clients send it back; only owners of images may set another one.
 *
 * @param slug of the deployment, unless it is being created.
 */
export function removeReadOnly<Given extends SourceConfig | null | undefined>(
  given: Given,
  source: DeploymentSource,
  slug?: string,
): Given {
  if (given?.custom_url == null) return given;
  const isOwn = slug !== undefined && given.custom_url.endsWith(`/deployments/${slug}`);
  return isBuildable(source) || isOwn ? { ...given, custom_url: null } : given;
}

/** Whether the revision has what it needs to run. A deployment of an uploaded source is created before its upload. */
export function isComplete({ source, sourceRevisionConfig }: SourceDescription): boolean {
  if (source === 'internal_source') return sourceRevisionConfig.source_tarball_path != null;
  if (source === 'github') return sourceRevisionConfig.repo_ref != null;
  return sourceRevisionConfig.image_uri != null;
}

/**
 * Checks the URL of a git repository: https, http or ssh, without options and other transports of git.
 *
 * @throws DEPLOYMENT_INVALID
 */
export function checkRepositoryUrl(url: string | null | undefined): URL {
  const field = 'source_config.repo_url';
  if (url == null) throw createError(field, 'it is required for this source');
  // The short form of ssh, as user@host:path.
  const [, user, host, path] = /^([\w.-]+)@([\w.-]+):(?!\/)([^\s\\]+)$/.exec(url) ?? [];
  const text = host === undefined ? url : `ssh://${user}@${host}/${path}`;
  if (!URL.canParse(text) || /[\s\\\p{Cc}]/u.test(text)) throw createError(field, 'it is not a URL');
  const parsed = new URL(text);
  if (!['https:', 'http:', 'ssh:'].includes(parsed.protocol))
    throw createError(field, `the scheme ${parsed.protocol} is not allowed; use https, http or ssh`);
  // Hosts of URLs with the scheme ssh may contain any character; git passes the host to a shell. Versions of curl before 7.82
  // remove a dot at the end, and then look the host up again, so that its address would be another than the checked one.
  if (!/^(?:[a-z0-9_](?:[\w.-]*[\w-])?|\[[\da-f:.]+\])$/i.test(parsed.hostname))
    throw createError(field, 'it has no valid host');
  if (parsed.username.startsWith('-') || parsed.pathname.length < 2) throw createError(field, 'it has no valid path');
  if (parsed.password !== '' || (parsed.username !== '' && parsed.protocol !== 'ssh:'))
    throw createError(field, 'it must not contain credentials; put a token into the secret GIT_TOKEN');
  return parsed;
}

/** Source: git-check-ref-format(1), without names that git could read as an option or a range. @throws DEPLOYMENT_INVALID */
export function checkReference(reference: string): void {
  const isValid = /^[\w.][\w./+-]{0,254}$/.test(reference) && !/\.\.|\/\/|\.lock$|[/.]$|^\/|\/\./.test(reference);
  if (!isValid) throw createError('source_revision_config.repo_ref', 'it is not the name of a branch, tag or commit');
}

/** @throws DEPLOYMENT_INVALID */
function checkRelativePath(path: string): void {
  const isValid =
    path.length <= 512 &&
    !path.startsWith('/') &&
    !/[\\\0]/.test(path) &&
    !path.split('/').includes('..') &&
    path !== '';
  if (!isValid) {
    throw createError(
      'source_revision_config.langgraph_config_path',
      'it must be a path below the root of the source, without ..',
    );
  }
}
