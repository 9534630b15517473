import type { Destination } from './paths.ts';

export const readers = ['DuckDB', 'pandas', 'ClickHouse'] as const;
export type Reader = (typeof readers)[number];

/** Location of the files of an export: a local folder, or a folder of an S3 store. */
interface FileLocation {
  /** Path for DuckDB and pandas. */
  readonly path: string;
  /** URL of the folder over HTTP; undefined for a local folder. */
  readonly url?: string;
}

/** Returns a program that reads all files of an export. */
export function buildSnippet(reader: Reader, destination: Destination, folder: string): string {
  const location = findLocation(destination, folder);
  if (reader === 'DuckDB') return buildDuckdbSnippet(destination, location);
  return reader === 'pandas' ? buildPandasSnippet(destination, location) : buildClickhouseSnippet(location);
}

function buildDuckdbSnippet(destination: Destination, { path }: FileLocation): string {
  return `${buildDuckdbSecret(destination)}SELECT year, month, day, count(*) AS runs
FROM read_parquet(${quote(`${path}/**/*.parquet`)}, hive_partitioning = true)
GROUP BY ALL ORDER BY ALL;`;
}

/** DuckDB reads the credentials from the environment, as the AWS tools do. */
function buildDuckdbSecret({ destination_type, config }: Destination): string {
  if (destination_type === 'local') return '';
  const options = ['TYPE s3', 'PROVIDER credential_chain'];
  if (config.region !== null) options.push(`REGION ${quote(config.region)}`);
  if (config.endpoint_url !== null) {
    const { protocol, host } = new URL(config.endpoint_url);
    options.push(`ENDPOINT ${quote(host)}`, `USE_SSL ${protocol === 'https:'}`);
    if (hasPathStyle(config)) options.push("URL_STYLE 'path'");
  }
  return `CREATE SECRET (${options.join(', ')});\n`;
}

function buildPandasSnippet({ destination_type, config }: Destination, { path }: FileLocation): string {
  const packages = destination_type === 'local' ? 'pandas pyarrow' : 'pandas pyarrow s3fs';
  const options =
    destination_type === 'local' || config.endpoint_url === null
      ? ''
      : `, storage_options={"endpoint_url": ${quotePython(new URL(config.endpoint_url).origin)}}`;
  return `# pip install ${packages}
import pandas

runs = pandas.read_parquet(${quotePython(path)}${options})
print(runs.groupby(["year", "month", "day"], observed=True).size())`;
}

function buildClickhouseSnippet({ path, url }: FileLocation): string {
  const source =
    url === undefined
      ? `file(${quoteClickhouse(`${path}/**/*.parquet`)}, Parquet)`
      : `s3(${quoteClickhouse(`${url}/**/*.parquet`)}, '<access key id>', '<secret access key>', Parquet)`;
  return `SELECT _path, count() AS runs
FROM ${source}
GROUP BY _path ORDER BY _path;`;
}

function findLocation({ destination_type, config }: Destination, folder: string): FileLocation {
  if (destination_type === 'local') return { path: folder };
  const { bucket_name: bucket, endpoint_url: endpoint, region, include_bucket_in_prefix: hasBucket } = config;
  if (endpoint === null) {
    const host = `${bucket}.s3.${region ?? 'us-east-1'}.amazonaws.com`;
    return { path: `s3://${bucket}/${folder}`, url: `https://${host}/${encodePath(folder)}` };
  }
  const base = endpoint.replace(/\/+$/, '');
  // The endpoint is the URL of the bucket: the name of the bucket is its path, or the first label of its host.
  if (!hasBucket) {
    const { pathname, hostname } = new URL(base);
    const name = bucket ?? (pathname.replace(/^\/+/, '') || hostname.split('.')[0]);
    return { path: `s3://${name}/${folder}`, url: `${base}/${encodePath(folder)}` };
  }
  const url = new URL(base);
  if (!hasPathStyle(config)) url.host = `${bucket}.${url.host}`;
  const bucketUrl = url.href.replace(/\/+$/, '') + (hasPathStyle(config) ? `/${bucket}` : '');
  return { path: `s3://${bucket}/${folder}`, url: `${bucketUrl}/${encodePath(folder)}` };
}

function hasPathStyle({ config_kwargs_s3 }: Destination['config']): boolean {
  return config_kwargs_s3?.addressing_style !== 'virtual';
}

/** Percent-encodes a path, including `?` and `#`, but not the `=` of partition folders. */
function encodePath(folder: string): string {
  return encodeURI(folder).replaceAll('?', '%3F').replaceAll('#', '%23');
}

function quote(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}

function quoteClickhouse(text: string): string {
  return `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
}

/** Python accepts the escapes of JSON. */
function quotePython(text: string): string {
  return JSON.stringify(text);
}
