/**
 * What an owner may set of the containers of a deployment: fields of `resource_spec` and `secret_references`.
 *
 * Fields are allowed by name, so that fields of later versions of Kubernetes are refused until they are listed here. None
 * of them gives access to the machine of a pod: no host ports, no volumes of the host, no privileges. Fields that refer to
 * other objects of the cluster, or that other objects refer to, are for the operator of the installation only, because
 * these objects do not belong to a workspace.
 */
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { isJsonObject } from '../../infra/json/json-value.ts';
import type { ResourceSpec, SecretReference } from './driver.ts';

/** The fields of a deployment that determine its containers. */
export interface PodFields {
  readonly resources: ResourceSpec;
  readonly secretReferences: readonly SecretReference[];
}

type Fields = Readonly<Record<string, unknown>>;

/** Name of the container of the image in its pod. */
export const containerName = 'agent-server';

const volumeFields = ['name', 'emptyDir', 'configMap', 'secret', 'persistentVolumeClaim'];
const mountFields = ['name', 'mountPath', 'subPath', 'subPathExpr', 'readOnly'];
const portFields = ['name', 'containerPort', 'protocol'];
const probeFields = ['livenessProbe', 'readinessProbe', 'startupProbe'];
const containerFields = [
  ...['name', 'image', 'imagePullPolicy', 'command', 'args', 'workingDir', 'restartPolicy', 'resources'],
  ...['env', 'envFrom', 'ports', 'volumeMounts', 'lifecycle', 'terminationMessagePath', 'terminationMessagePolicy'],
  ...probeFields,
];
const variableFields = ['name', 'value', 'valueFrom'];
const variableSources = ['secretKeyRef', 'configMapKeyRef', 'fieldRef', 'resourceFieldRef'];
const environmentSources = ['prefix', 'secretRef', 'configMapRef'];
/** Secrets of this name contain the variables of deployments. */
const ownSecretPattern = /^runlake-/;

/** A reference to an object of the cluster that the pod would use. */
interface ObjectReference {
  readonly field: string;
  readonly kind: 'secret' | 'other';
  readonly name: string;
}

/** Checks the fields. @throws DEPLOYMENT_INVALID */
export function checkPod(fields: PodFields): void {
  const own = listReferences(fields).find(({ kind, name }) => kind === 'secret' && ownSecretPattern.test(name));
  if (own !== undefined)
    throw refuse(own.field, `Secrets whose names start with runlake- belong to deployments and must not be used`);
}

/**
 * Returns the first field that refers to other objects of the cluster, or that they refer to: Services and policies select
 * pods by labels, and controllers read annotations.
 *
 * @throws DEPLOYMENT_INVALID as {@link checkPod}.
 */
export function findOperatorField(fields: PodFields): string | undefined {
  const { labels, annotations } = fields.resources;
  const [named] = listReferences(fields);
  if (named !== undefined) return named.field;
  if (Object.keys(labels ?? {}).length > 0) return 'source_config.resource_spec.labels';
  return Object.keys(annotations ?? {}).length > 0 ? 'source_config.resource_spec.annotations' : undefined;
}

function listReferences({ resources, secretReferences }: PodFields): readonly ObjectReference[] {
  const at = (field: string) => `source_config.resource_spec.${field}`;
  const { volumes, volume_mounts, init_containers, sidecars, image_pull_secrets, service_account_name } = resources;
  for (const [index, mount] of (volume_mounts ?? []).entries())
    allowOnly(mount, at(`volume_mounts[${index}]`), mountFields);
  return [
    ...(volumes ?? []).flatMap((volume, index) => listOfVolume(volume, at(`volumes[${index}]`))),
    ...(init_containers ?? []).flatMap((each, index) => listOfContainer(each, at(`init_containers[${index}]`))),
    ...(sidecars ?? []).flatMap((each, index) => listOfContainer(each, at(`sidecars[${index}]`))),
    ...(image_pull_secrets ?? []).map(({ name }, index) => toSecret(at(`image_pull_secrets[${index}]`), name)),
    ...(service_account_name ? [toOther(at('service_account_name'), service_account_name)] : []),
    ...secretReferences.map(({ secret_name: name }, index) => toSecret(`secret_references[${index}]`, name)),
  ];
}

function listOfVolume(volume: Fields, field: string): ObjectReference[] {
  const { secret, configMap, persistentVolumeClaim: claim } = allowOnly(volume, field, volumeFields);
  const read = (value: unknown, name: string, key: string) => toObject(value, `${field}.${name}`)[key];
  return [
    ...(secret == null ? [] : [toSecret(`${field}.secret`, read(secret, 'secret', 'secretName'))]),
    ...(configMap == null ? [] : [toOther(`${field}.configMap`, read(configMap, 'configMap', 'name'))]),
    ...(claim == null
      ? []
      : [toOther(`${field}.persistentVolumeClaim`, read(claim, 'persistentVolumeClaim', 'claimName'))]),
  ];
}

function listOfContainer(container: Fields, field: string): ObjectReference[] {
  const { name, env, envFrom, ports, volumeMounts, lifecycle } = allowOnly(container, field, containerFields);
  if (name === containerName) throw refuse(`${field}.name`, `${containerName} is the container of the image`);
  for (const [port, at] of toList(ports, `${field}.ports`)) allowOnly(port, at, portFields);
  for (const [mount, at] of toList(volumeMounts, `${field}.volumeMounts`)) allowOnly(mount, at, mountFields);
  for (const probe of probeFields) if (container[probe] != null) checkHandler(container[probe], `${field}.${probe}`);
  if (lifecycle != null) {
    for (const [event, handler] of Object.entries(toObject(lifecycle, `${field}.lifecycle`)))
      if (handler != null && typeof handler === 'object') checkHandler(handler, `${field}.lifecycle.${event}`);
  }
  return [
    ...toList(env, `${field}.env`).flatMap(([variable, at]) => {
      const { valueFrom } = allowOnly(variable, at, variableFields);
      return valueFrom == null ? [] : listOfSources(valueFrom, `${at}.valueFrom`, variableSources);
    }),
    ...toList(envFrom, `${field}.envFrom`).flatMap(([source, at]) => listOfSources(source, at, environmentSources)),
  ];
}

function listOfSources(value: unknown, field: string, allowed: readonly string[]): ObjectReference[] {
  const sources = allowOnly(value, field, allowed);
  return Object.entries(sources).flatMap(([kind, source]) => {
    if (source == null || kind === 'prefix' || kind === 'fieldRef' || kind === 'resourceFieldRef') return [];
    const { name } = toObject(source, `${field}.${kind}`);
    return [kind.startsWith('secret') ? toSecret(`${field}.${kind}`, name) : toOther(`${field}.${kind}`, name)];
  });
}

/** The machine sends the requests of probes, so they must go to the pod itself. */
function checkHandler(value: unknown, field: string): void {
  const handler = toObject(value, field);
  for (const kind of ['httpGet', 'tcpSocket']) {
    const { host } = handler[kind] == null ? {} : toObject(handler[kind], `${field}.${kind}`);
    if (host != null) throw refuse(`${field}.${kind}.host`, 'it is not allowed; requests go to the pod');
  }
}

const toSecret = (field: string, name: unknown): ObjectReference => ({ field, kind: 'secret', name: String(name) });
const toOther = (field: string, name: unknown): ObjectReference => ({ field, kind: 'other', name: String(name) });

function allowOnly(value: unknown, field: string, allowed: readonly string[]): Fields {
  const fields = toObject(value, field);
  const other = Object.keys(fields).find((name) => !allowed.includes(name) && fields[name] !== null);
  if (other !== undefined)
    throw refuse(`${field}.${other}`, `it is not allowed; the allowed fields are ${allowed.join(', ')}`);
  return fields;
}

function toList(value: unknown, field: string): [item: unknown, field: string][] {
  if (value == null) return [];
  if (!Array.isArray(value)) throw refuse(field, 'it must be a list');
  return value.map((item, index) => [item, `${field}[${index}]`]);
}

function toObject(value: unknown, field: string): Fields {
  if (!isJsonObject(value)) throw refuse(field, 'it must be an object');
  return value;
}

const refuse = (field: string, reason: string) => runlakeError('DEPLOYMENT_INVALID', { field, reason });
