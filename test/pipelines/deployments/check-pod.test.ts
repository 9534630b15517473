import { describe, expect, it } from 'vitest';
import { checkPod, findOperatorField, type PodFields } from '../../../pipelines/deployments/check-pod.ts';

const toFields = (fields: object): PodFields => {
  const { secretReferences = [], ...resources } = fields as Partial<PodFields>;
  return { resources: resources as PodFields['resources'], secretReferences };
};
const sidecar = (fields: object) => ({ sidecars: [{ name: 'a', image: 'a:1', ...fields }] });
const initial = (fields: object) => ({ init_containers: [{ name: 'a', image: 'a:1', ...fields }] });
const volume = (fields: object) => ({ volumes: [{ name: 'v', ...fields }] });
const reference = (secret_name: string) => ({ secretReferences: [{ name: 'A', secret_name, secret_key: 'a' }] });

describe.each<[fields: object, field: string]>([
  [sidecar({ ports: [{ containerPort: 80, hostPort: 80 }] }), 'sidecars[0].ports[0].hostPort'],
  [sidecar({ ports: [{ containerPort: 80, hostIP: '0.0.0.0' }] }), 'sidecars[0].ports[0].hostIP'],
  [initial({ ports: [{ containerPort: 80, hostPort: 80 }] }), 'init_containers[0].ports[0].hostPort'],
  [sidecar({ ports: { hostPort: 80 } }), 'sidecars[0].ports'],
  [sidecar({ securityContext: { privileged: true } }), 'sidecars[0].securityContext'],
  [initial({ securityContext: { capabilities: { add: ['SYS_ADMIN'] } } }), 'init_containers[0].securityContext'],
  [sidecar({ volumeDevices: [{ name: 'v', devicePath: '/dev/sda' }] }), 'sidecars[0].volumeDevices'],
  [sidecar({ hostNetwork: true }), 'sidecars[0].hostNetwork'],
  [sidecar({ hostPID: true }), 'sidecars[0].hostPID'],
  [sidecar({ hostIPC: true }), 'sidecars[0].hostIPC'],
  [sidecar({ nodeName: 'node-1' }), 'sidecars[0].nodeName'],
  [sidecar({ ofLaterVersions: true }), 'sidecars[0].ofLaterVersions'],
  [
    sidecar({ volumeMounts: [{ name: 'v', mountPath: '/a', mountPropagation: 'Bidirectional' }] }),
    'sidecars[0].volumeMounts[0].mountPropagation',
  ],
  [
    { volume_mounts: [{ name: 'v', mountPath: '/a', mountPropagation: 'HostToContainer' }] },
    'volume_mounts[0].mountPropagation',
  ],
  [
    sidecar({ livenessProbe: { httpGet: { host: '169.254.169.254', port: 80 } } }),
    'sidecars[0].livenessProbe.httpGet.host',
  ],
  [
    sidecar({ lifecycle: { postStart: { tcpSocket: { host: '10.0.0.1', port: 22 } } } }),
    'sidecars[0].lifecycle.postStart.tcpSocket.host',
  ],
  [sidecar({ name: 'agent-server' }), 'sidecars[0].name'],
  [volume({ hostPath: { path: '/' } }), 'volumes[0].hostPath'],
  [volume({ nfs: { server: 'a', path: '/' } }), 'volumes[0].nfs'],
  [volume({ csi: { driver: 'a' } }), 'volumes[0].csi'],
  [volume({ projected: { sources: [{ serviceAccountToken: { path: 'token' } }] } }), 'volumes[0].projected'],
  [volume({ secret: { secretName: 'runlake-x' } }), 'volumes[0].secret'],
  [sidecar({ envFrom: [{ secretRef: { name: 'runlake-x' } }] }), 'sidecars[0].envFrom[0].secretRef'],
  [
    initial({ env: [{ name: 'A', valueFrom: { secretKeyRef: { name: 'runlake-x', key: 'a' } } }] }),
    'init_containers[0].env[0].valueFrom.secretKeyRef',
  ],
  [sidecar({ env: [{ name: 'A', valueFrom: { other: {} } }] }), 'sidecars[0].env[0].valueFrom.other'],
  [sidecar({ env: ['A=B'] }), 'sidecars[0].env[0]'],
  [{ image_pull_secrets: [{ name: 'runlake-x' }] }, 'image_pull_secrets[0]'],
  [reference('runlake-x'), 'secret_references[0]'],
])('%j', (fields, field) => {
  it('is refused with the field', () => {
    const start = `${field.startsWith('secret_references') ? '' : 'source_config.resource_spec.'}${field}: `;
    expect(() => checkPod(toFields(fields))).toThrowError(
      expect.objectContaining({ code: 'DEPLOYMENT_INVALID', message: expect.stringContaining(start) }),
    );
  });
});

it.each<[fields: object, field: string | undefined]>([
  [volume({ secret: { secretName: 'a' } }), 'volumes[0].secret'],
  [volume({ configMap: { name: 'a' } }), 'volumes[0].configMap'],
  [volume({ persistentVolumeClaim: { claimName: 'a' } }), 'volumes[0].persistentVolumeClaim'],
  [sidecar({ envFrom: [{ prefix: 'A_', configMapRef: { name: 'a' } }] }), 'sidecars[0].envFrom[0].configMapRef'],
  [sidecar({ envFrom: [{ secretRef: { name: 'a' } }] }), 'sidecars[0].envFrom[0].secretRef'],
  [initial({ env: [{ name: 'A', valueFrom: { configMapKeyRef: { name: 'a' } } }] }), 'init_containers[0].env[0]'],
  [{ image_pull_secrets: [{ name: 'a' }] }, 'image_pull_secrets[0]'],
  [{ service_account_name: 'a' }, 'service_account_name'],
  [{ labels: { app: 'runlake' } }, 'labels'],
  [{ annotations: { 'sidecar.example/inject': 'true' } }, 'annotations'],
  [reference('a'), 'secret_references[0]'],
  [{ service_account_name: '', labels: {}, annotations: null, volumes: null, sidecars: [] }, undefined],
  [
    {
      ...volume({ emptyDir: {} }),
      ...sidecar({
        ports: [{ name: 'http', containerPort: 80, protocol: 'TCP' }],
        env: [
          { name: 'A', value: 'a' },
          { name: 'B', valueFrom: { fieldRef: { fieldPath: 'status.podIP' } } },
        ],
        volumeMounts: [{ name: 'v', mountPath: '/v', readOnly: true }],
        livenessProbe: { httpGet: { path: '/', port: 80 } },
        lifecycle: { preStop: { exec: { command: ['true'] } } },
        resources: { limits: { cpu: '1' } },
      }),
    },
    undefined,
  ],
])('%j is allowed, and refers to objects of the cluster with %s', (fields, field) => {
  checkPod(toFields(fields));
  const found = findOperatorField(toFields(fields));
  if (field === undefined) expect(found).toBeUndefined();
  else expect(found).toContain(field);
});
