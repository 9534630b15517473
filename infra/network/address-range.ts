import { BlockList, isIP, isIPv4 } from 'node:net';

/** A range of addresses that are not on the public internet. */
export interface AddressRange {
  /** Description of the range in messages of the form "<host> is …". */
  readonly about: string;
  /**
   * Whether the operator can allow callers to reach this range. Ranges that cannot be allowed never contain a
   * legitimate server.
   */
  readonly isAllowable: boolean;
}

type Row = readonly [about: string, isAllowable: boolean, networks: readonly string[]];

/**
 * Ranges in order of precedence: the range of an address is the first row that contains it. Sources: the
 * special-purpose registries of IANA, documentation of cloud providers.
 */
const rangeRows: readonly Row[] = [
  // These ranges come first, because some of them are inside wider ranges.
  [
    'a metadata address, where clouds serve credentials',
    false,
    [
      '169.254.169.254/32',
      '169.254.170.2/32',
      '100.100.100.200/32',
      '192.0.0.192/32',
      '168.63.129.16/32',
      'fd00:ec2::/32',
    ],
  ],
  ['a loopback address', true, ['127.0.0.0/8', '::1/128']],
  ['an unspecified address', false, ['0.0.0.0/8', '::/128']],
  ['a link-local address', false, ['169.254.0.0/16', 'fe80::/10']],
  [
    'a private address',
    true,
    ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', 'fc00::/7', 'fec0::/10', '64:ff9b:1::/48'],
  ],
  ['a shared address of carrier-grade NAT', true, ['100.64.0.0/10']],
  ['a benchmarking address', true, ['198.18.0.0/15', '2001:2::/48']],
  ['a multicast address', false, ['224.0.0.0/4', 'ff00::/8']],
  [
    'a reserved address',
    false,
    [
      '192.0.0.0/24',
      '192.0.2.0/24',
      '192.88.99.0/24',
      '198.51.100.0/24',
      '203.0.113.0/24',
      '240.0.0.0/4',
      '2001:db8::/32',
      // Teredo tunnels.
      '2001::/32',
    ],
  ],
];

const ranges = rangeRows.map(([about, isAllowable, networks]) => {
  const list = new BlockList();
  for (const network of networks) {
    const [address = '', bits] = network.split('/');
    list.addSubnet(address, Number(bits), isIPv4(address) ? 'ipv4' : 'ipv6');
  }
  return { range: { about, isAllowable }, list };
});

const nonPublicRange: AddressRange = { about: 'not a public address', isAllowable: false };

/**
 * Returns the range of an IP address in any notation that Node accepts, or undefined if it is public. An IPv4 address
 * inside an IPv6 address (mapped, compatible, NAT64, 6to4) is classified as IPv4; text that is not an address is
 * classified as not public.
 */
export function classifyAddress(address: string): AddressRange | undefined {
  const family = isIP(address);
  if (family === 0) return nonPublicRange;
  if (family === 4) return findRange(address, 'ipv4');
  const plain = address.split('%', 1)[0] as string;
  const inner = findEmbeddedIpv4(parseIpv6Groups(plain));
  if (inner !== undefined) return findRange(inner, 'ipv4');
  return findRange(plain, 'ipv6') ?? (/^[23]/.test(plain) && plain.indexOf(':') === 4 ? undefined : nonPublicRange);
}

function findRange(address: string, family: 'ipv4' | 'ipv6'): AddressRange | undefined {
  return ranges.find(({ list }) => list.check(address, family))?.range;
}

/**
 * Returns the eight groups of an IPv6 address. Uses `URL`, which normalises the address to groups without dotted
 * decimals.
 */
function parseIpv6Groups(address: string): number[] {
  const normalised = new URL(`http://[${address}]`).hostname.slice(1, -1);
  const [head = '', tail] = normalised.split('::');
  const parse = (text: string) => (text === '' ? [] : text.split(':').map((group) => Number.parseInt(group, 16)));
  const [first, last] = [parse(head), parse(tail ?? '')];
  return tail === undefined ? first : [...first, ...Array<number>(8 - first.length - last.length).fill(0), ...last];
}

/** Returns the IPv4 address to which packets for this IPv6 address are delivered; undefined if there is none. */
function findEmbeddedIpv4(groups: readonly number[]): string | undefined {
  const formatIpv4 = (high = 0, low = 0) => [high >> 8, high & 255, low >> 8, low & 255].join('.');
  const startsWith = (...start: number[]) => start.every((group, index) => groups[index] === group);
  if (startsWith(0x2002)) return formatIpv4(groups[1], groups[2]);
  const last = formatIpv4(groups[6], groups[7]);
  if (startsWith(0, 0, 0, 0, 0, 0xffff) || startsWith(0x64, 0xff9b, 0, 0, 0, 0)) return last;
  // `::` and `::1` are IPv6 addresses, not compatible IPv4 addresses.
  return startsWith(0, 0, 0, 0, 0, 0) && (groups[6] !== 0 || (groups[7] ?? 0) > 1) ? last : undefined;
}
