//! The lists of uploads and of their parts, as the store in memory answers them: a portion at a time.

use bytes::Bytes;
use http::StatusCode;
use object_store::client::HttpResponse;

use super::{State, answered, escaped, parameter, refusal, time_text};

impl State {
    pub(super) fn list_uploads(&self, query: &str) -> HttpResponse {
        let parameter = |name| parameter(query, name).unwrap_or_default();
        let prefix = parameter("prefix");
        let after = (parameter("key-marker"), parameter("upload-id-marker"));
        let after = (after.0.as_str(), after.1.as_str());
        let page = match self.habits.portion {
            0 => 1000,
            page => page,
        };
        let mut below: Vec<_> = self
            .uploads
            .iter()
            .map(|(id, upload)| (upload.key.as_str(), id.as_str(), upload.begun_s))
            .filter(|(key, id, _)| key.starts_with(&prefix) && (*key, *id) > after)
            .collect();
        below.sort_unstable();
        let mut text = "<ListMultipartUploadsResult>".to_owned();
        for (key, id, begun_s) in below.iter().take(page) {
            text += &format!(
                "<Upload><Key>{}</Key><UploadId>{id}</UploadId><Initiated>{}</Initiated></Upload>",
                escaped(key),
                time_text(*begun_s, "%Y-%m-%dT%H:%M:%S.000Z")
            );
        }
        text += &match below
            .get(page.wrapping_sub(1))
            .filter(|_| below.len() > page)
        {
            Some((key, id, _)) => format!(
                "<IsTruncated>true</IsTruncated><NextKeyMarker>{}</NextKeyMarker><NextUploadIdMarker>{id}</NextUploadIdMarker>",
                escaped(key)
            ),
            None => "<IsTruncated>false</IsTruncated>".to_owned(),
        };
        text += "</ListMultipartUploadsResult>";
        answered(StatusCode::OK, &[], text.into_bytes().into())
    }

    /// The parts of an upload after a number.
    pub(super) fn list_parts(&self, id: &str, query: &str) -> HttpResponse {
        let Some(upload) = self.uploads.get(id) else {
            return refusal(404, "NoSuchUpload");
        };
        let after = parameter(query, "part-number-marker").and_then(|n| n.parse().ok());
        let page = match self.habits.portion {
            0 => 1000,
            page => page,
        };
        let rest = upload.parts.range(after.map_or(0, |n: u32| n + 1)..);
        let rows: Vec<_> = rest.clone().take(page).collect();
        let row = |(number, (bytes, tag)): &(&u32, &(Bytes, String))| {
            let (tag, len) = (tag.replace('"', "&quot;"), bytes.len());
            let at = time_text(upload.last_s, "%Y-%m-%dT%H:%M:%S.000Z");
            format!(
                "<Part><PartNumber>{number}</PartNumber><LastModified>{at}</LastModified><ETag>{tag}</ETag>\
                 <Size>{len}</Size></Part>"
            )
        };
        let text: String = rows.iter().map(row).collect();
        let more = match rows.last().filter(|_| rest.count() > page) {
            Some((last, _)) => format!(
                "<IsTruncated>true</IsTruncated><NextPartNumberMarker>{last}</NextPartNumberMarker>"
            ),
            None => "<IsTruncated>false</IsTruncated>".to_owned(),
        };
        let text = format!("<ListPartsResult>{more}{text}</ListPartsResult>");
        answered(StatusCode::OK, &[], text.into_bytes().into())
    }
}
