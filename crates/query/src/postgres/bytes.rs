//! PostgreSQL's functions of `bytea` that DataFusion lacks, or has for strings only.
//!
//! | function | result |
//! | --- | --- |
//! | `sha224(b)`, `sha256(b)`, `sha384(b)`, `sha512(b)` | the digest |
//! | `get_byte(b, n)`, `get_bit(b, n)` | byte or bit `n`, from 0; bits of a byte from the lowest |
//! | `set_byte(b, n, value)`, `set_bit(b, n, value)` | the bytes with another one |
//! | `octet_length(b)`, `bit_length(b)` | number of bytes, of bits; also of a string. `length(b)` is the first |
//! | `bit_count(b)` | number of bits that are set |
//! | `convert_to(text, encoding)`, `convert_from(b, encoding)` | bytes of a string in UTF8, SQL_ASCII or LATIN1, and back |

use crate::error::{Error, external};
use crate::postgres::functions::bytea;
use crate::postgres::type_names::no_function;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, BinaryArray, Int32Array, Int64Array, StringArray};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result as DFResult, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use sha2::Digest;
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum BytesFunction {
    Sha224,
    Sha256,
    Sha384,
    Sha512,
    GetByte,
    SetByte,
    GetBit,
    SetBit,
    BitCount,
    OctetLength,
    BitLength,
    ConvertTo,
    ConvertFrom,
}

use BytesFunction::{
    BitCount, BitLength, ConvertFrom, ConvertTo, GetBit, GetByte, OctetLength, SetBit, SetByte, Sha224,
    Sha256, Sha384, Sha512,
};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Function {
    kind: BytesFunction,
    signature: Signature,
}

/// Number of bytes of an expression.
pub(crate) fn octet_length(bytes: Expr) -> Expr {
    OctetLength.function().call(vec![bytes])
}

impl BytesFunction {
    fn function(self) -> ScalarUDF {
        let signature = Signature::user_defined(Volatility::Immutable);
        ScalarUDF::from(Function { kind: self, signature })
    }
}

/// All functions of this module.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    [
        Sha224,
        Sha256,
        Sha384,
        Sha512,
        GetByte,
        SetByte,
        GetBit,
        SetBit,
        BitCount,
        OctetLength,
        BitLength,
        ConvertTo,
        ConvertFrom,
    ]
    .into_iter()
    .map(BytesFunction::function)
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        match self.kind {
            Sha224 => "sha224",
            Sha256 => "sha256",
            Sha384 => "sha384",
            Sha512 => "sha512",
            GetByte => "get_byte",
            SetByte => "set_byte",
            GetBit => "get_bit",
            SetBit => "set_bit",
            BitCount => "bit_count",
            OctetLength => "octet_length",
            BitLength => "bit_length",
            ConvertTo => "convert_to",
            ConvertFrom => "convert_from",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> DFResult<Vec<DataType>> {
        let is_text = |of: &DataType| {
            matches!(of, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null)
        };
        let bytes = |of: &DataType| match of {
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Some(DataType::Binary),
            of if is_text(of) => Some(DataType::Utf8),
            _ => None,
        };
        let is_number = |of: &DataType| of.is_integer() || of.is_null();
        let types = match (self.kind, arguments) {
            (Sha224 | Sha256 | Sha384 | Sha512 | BitCount | OctetLength | BitLength, [of]) => {
                bytes(of).map(|of| vec![of])
            }
            (GetByte | GetBit, [of, at]) if is_number(at) => bytes(of).map(|of| vec![of, DataType::Int64]),
            (SetByte | SetBit, [of, at, value]) if is_number(at) && is_number(value) => {
                bytes(of).map(|of| vec![of, DataType::Int64, DataType::Int64])
            }
            (ConvertFrom, [of, encoding]) if is_text(encoding) => {
                bytes(of).map(|of| vec![of, DataType::Utf8])
            }
            (ConvertTo, [of, encoding]) if is_text(of) && is_text(encoding) => Some(vec![DataType::Utf8; 2]),
            _ => None,
        };
        types.ok_or_else(|| no_function(self.name(), arguments))
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(match self.kind {
            Sha224 | Sha256 | Sha384 | Sha512 | SetByte | SetBit | ConvertTo => DataType::Binary,
            GetByte | GetBit | OctetLength | BitLength => DataType::Int32,
            BitCount => DataType::Int64,
            ConvertFrom => DataType::Utf8,
        })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let rows = arguments.number_rows;
        let arrays: Vec<ArrayRef> =
            arguments.args.iter().map(|argument| argument.to_array(rows)).collect::<DFResult<_>>()?;
        let Some(first) = arrays.first() else { return internal_err!("{} expects bytes", self.name()) };
        let calls = Calls { kind: self.kind, first, arrays: &arrays, rows };
        Ok(ColumnarValue::Array(match self.kind {
            GetByte | GetBit => Arc::new(Int32Array::from(calls.each(Calls::bits)?)),
            OctetLength | BitLength => Arc::new(Int32Array::from(calls.each(Calls::length)?)),
            BitCount => {
                let count = |calls: &Calls<'_>, row| {
                    Ok(calls.bytes(row)?.iter().map(|byte| i64::from(byte.count_ones())).sum::<i64>())
                };
                Arc::new(Int64Array::from(calls.each(count)?))
            }
            ConvertFrom => Arc::new(StringArray::from(calls.each(Calls::text)?)),
            _ => Arc::new(BinaryArray::from_iter(calls.each(Calls::made)?)),
        }))
    }
}

/// Arguments of all rows.
struct Calls<'a> {
    kind: BytesFunction,
    first: &'a ArrayRef,
    arrays: &'a [ArrayRef],
    rows: usize,
}

impl Calls<'_> {
    /// Results of the rows without NULL.
    fn each<T>(&self, of: impl Fn(&Self, usize) -> DFResult<T>) -> DFResult<Vec<Option<T>>> {
        let is_null = |row| self.arrays.iter().any(|array| array.is_null(row));
        (0..self.rows).map(|row| (!is_null(row)).then(|| of(self, row)).transpose()).collect()
    }

    fn bytes(&self, row: usize) -> DFResult<Vec<u8>> {
        Ok(bytea(self.first.as_ref(), row)?.into_owned())
    }

    /// Length in bytes or bits, of a string as it is.
    fn length(&self, row: usize) -> DFResult<i32> {
        let bytes = match self.first.data_type() {
            DataType::Binary => self.first.as_binary::<i32>().value(row).len(),
            _ => self.first.as_string::<i32>().value(row).len(),
        };
        let length = if self.kind == BitLength { bytes.saturating_mul(8) } else { bytes };
        i32::try_from(length).map_err(|_| external(Error::coded("22003", "integer out of range")))
    }

    fn number(&self, argument: usize, row: usize) -> i64 {
        self.arrays[argument].as_primitive::<Int64Type>().value(row)
    }

    /// Byte of a place, and for bits the place in it.
    fn place(&self, bytes: &[u8], row: usize) -> DFResult<(usize, u32)> {
        let at = self.number(1, row);
        let is_bit = matches!(self.kind, GetBit | SetBit);
        let count = bytes.len() as i64 * if is_bit { 8 } else { 1 };
        if !(0..count).contains(&at) {
            let message = format!("index {at} out of valid range, 0..{}", count - 1);
            return Err(external(Error::coded("2202E", message)));
        }
        Ok(if is_bit { ((at / 8) as usize, (at % 8) as u32) } else { (at as usize, 0) })
    }

    fn bits(&self, row: usize) -> DFResult<i32> {
        let bytes = self.bytes(row)?;
        let (at, bit) = self.place(&bytes, row)?;
        Ok(match self.kind {
            GetBit => i32::from(bytes[at] >> bit & 1),
            _ => i32::from(bytes[at]),
        })
    }

    fn made(&self, row: usize) -> DFResult<Vec<u8>> {
        let encoding = || self.arrays[1].as_string::<i32>().value(row);
        if self.kind == ConvertTo {
            return encoded(self.first.as_string::<i32>().value(row), encoding());
        }
        let mut bytes = self.bytes(row)?;
        match self.kind {
            Sha224 => return Ok(sha2::Sha224::digest(&bytes).to_vec()),
            Sha256 => return Ok(sha2::Sha256::digest(&bytes).to_vec()),
            Sha384 => return Ok(sha2::Sha384::digest(&bytes).to_vec()),
            Sha512 => return Ok(sha2::Sha512::digest(&bytes).to_vec()),
            _ => {}
        }
        let ((at, bit), value) = (self.place(&bytes, row)?, self.number(2, row));
        match (self.kind, value) {
            (SetBit, 0) => bytes[at] &= !(1 << bit),
            (SetBit, 1) => bytes[at] |= 1 << bit,
            (SetBit, _) => return Err(external(Error::coded("22023", "new bit must be 0 or 1"))),
            // As PostgreSQL does: the lowest eight bits count.
            _ => bytes[at] = value as u8,
        }
        Ok(bytes)
    }

    fn text(&self, row: usize) -> DFResult<String> {
        decoded(self.bytes(row)?, self.arrays[1].as_string::<i32>().value(row))
    }
}

/// Encodings of strings.
enum Encoding {
    /// UTF8, and SQL_ASCII, which is any bytes that the database takes.
    Utf8,
    Latin1,
}

fn encoding(name: &str) -> DFResult<Encoding> {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    match plain.to_ascii_lowercase().as_str() {
        "utf8" | "unicode" | "sqlascii" => Ok(Encoding::Utf8),
        "latin1" | "iso88591" => Ok(Encoding::Latin1),
        _ => Err(external(Error::coded("22023", format!("invalid encoding name \"{name}\"")))),
    }
}

fn encoded(text: &str, name: &str) -> DFResult<Vec<u8>> {
    match encoding(name)? {
        Encoding::Utf8 => Ok(text.as_bytes().to_vec()),
        Encoding::Latin1 => {
            text.chars().map(|c| u8::try_from(u32::from(c)).map_err(|_| c)).collect::<Result<_, _>>().map_err(
                |c| {
                    let message = format!(
                        "character \"{c}\" in encoding \"UTF8\" has no equivalent in encoding \"LATIN1\""
                    );
                    external(Error::coded("22P05", message))
                },
            )
        }
    }
}

fn decoded(bytes: Vec<u8>, name: &str) -> DFResult<String> {
    match encoding(name)? {
        Encoding::Latin1 => Ok(bytes.into_iter().map(char::from).collect()),
        Encoding::Utf8 => String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            let byte = error.as_bytes()[at];
            let message = format!("invalid byte sequence for encoding \"UTF8\": 0x{byte:02x}");
            external(Error::coded("22021", message))
        }),
    }
}
